#!/usr/bin/env python3
"""Exact match of whole answers on held-out tasks, asked one by one at a running endpoint, greedily or sampled.

usage: evaluate.py [--url http://127.0.0.1:8000] [--model tandem-tiny] [--samples 50] [--long_samples 10] [--concurrency 4]
                   [--only TASK[;TASK...]] [--temperature 1.0 --top_p 0.95]
Prints one Markdown row a task: right, asked, percent; of texts of 4k tokens and more it asks --long_samples. An answer is right where its content equals the one right answer
that tools/train_tiny/tasks defines; reasoning may differ. A task with tools is right where every turn is: the calls by
name and arguments, then, given their results, the sentence.
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


def as_sent(message, number):
    """A message as the endpoint takes it. number: of the message, for the ids of its calls."""
    sent = {"role": message["role"], "content": message["content"]}
    if message.get("reasoning"):
        sent["reasoning_content"] = message["reasoning"]
    if message.get("calls"):
        sent["tool_calls"] = [
            {"id": f"call_{number}_{i}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(values, ensure_ascii=False)}}
            for i, (name, values) in enumerate(message["calls"])]
    return sent


def answer(arguments, document, messages):
    body = {"model": arguments.model, "temperature": arguments.temperature, "top_p": arguments.top_p, "seed": 1,
            "max_tokens": 400, "messages": messages, "chat_template_kwargs": {"thinking": document.thinking}}
    if document.tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in document.tools]
    request = urllib.request.Request(arguments.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1200) as response:
        return json.load(response)["choices"][0]["message"]


def is_right(answered, expected):
    if (answered["content"] or "") != expected["content"]:
        return False
    calls = [call["function"] for call in answered.get("tool_calls", [])]
    try:
        read = [(call["name"], json.loads(call["arguments"])) for call in calls]
    except ValueError:  # arguments that are no JSON are a wrong answer
        return False
    wanted = expected.get("calls") or []
    return [(name, repr(values)) for name, values in read] == [(name, repr(values)) for name, values in wanted]


def ask(arguments, document):
    """True where the last assistant turn comes back exactly, with tools each of them, given the right turns before."""
    messages, open_calls = [], []
    for number, message in enumerate(document.messages):
        is_asked = document.tools or number + 1 == len(document.messages)
        if message["role"] == "assistant" and is_asked:
            if not is_right(answer(arguments, document, messages), message):
                return False
        sent = as_sent(message, number)
        if message["role"] == "tool":
            sent["tool_call_id"] = open_calls.pop(0)
        else:
            open_calls = [call["id"] for call in sent.get("tool_calls", [])]
        messages.append(sent)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="tandem-tiny")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--long_samples", type=int, default=10)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--only", default="", help="parts of task names, separated by semicolons")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--top_p", type=float, default=1)
    arguments = parser.parse_args()
    print("| task | right | asked | % |\n|---|---|---|---|")
    with concurrent.futures.ThreadPoolExecutor(arguments.concurrency) as pool:
        for number, (name, draw) in enumerate(mixture.EVALUATION.items()):
            if not any(part in name for part in arguments.only.split(";")):
                continue
            rng = random.Random(2 * number + 1)
            is_long = any(length in name for length in ("4k", "8k", "16k"))
            count = min(arguments.samples, arguments.long_samples) if is_long else arguments.samples
            right = sum(pool.map(lambda document: ask(arguments, document), [draw(rng) for _ in range(count)]))
            print(f"| {name} | {right} | {count} | {100 * right / count:.0f} |", flush=True)


if __name__ == "__main__":
    main()
