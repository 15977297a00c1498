#!/usr/bin/env python3
"""Exact match of whole answers on held-out tasks, asked one by one at a running endpoint with greedy decoding.

usage: evaluate.py [--url http://127.0.0.1:8000] [--model tandem-tiny] [--samples 50] [--concurrency 4] [--only TASK]
Prints one Markdown row a task: right, asked, percent. An answer is right where its content equals the one right answer
that tools/train_tiny/tasks defines; reasoning may differ. Tasks with tools are asked once the endpoint takes tools.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train_tiny"))

from tasks import mixture  # noqa: E402


def ask(arguments, document):
    """True where the last assistant turn comes back exactly."""
    *messages, expected = document.messages
    body = {"model": arguments.model, "temperature": 0, "max_tokens": 400,
            "messages": [{"role": m["role"], "content": m["content"]} for m in messages],
            "chat_template_kwargs": {"thinking": document.thinking}}
    request = urllib.request.Request(arguments.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["choices"][0]["message"]["content"] == expected["content"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="tandem-tiny")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    print("| task | right | asked | % |\n|---|---|---|---|")
    with concurrent.futures.ThreadPoolExecutor(arguments.concurrency) as pool:
        for number, (name, draw) in enumerate(mixture.EVALUATION.items()):
            if name.startswith("tools") or arguments.only not in name:
                continue
            rng = random.Random(2 * number + 1)
            count = arguments.samples if "8k" not in name and "16k" not in name else max(4, arguments.samples // 5)
            right = sum(pool.map(lambda document: ask(arguments, document), [draw(rng) for _ in range(count)]))
            print(f"| {name} | {right} | {count} | {100 * right / count:.0f} |", flush=True)


if __name__ == "__main__":
    main()
