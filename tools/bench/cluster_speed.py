#!/usr/bin/env python3
"""Prefill and decode rates of a running endpoint, over HTTP without streaming; prints one line a figure.

usage: cluster_speed.py [--url http://127.0.0.1:8000] [--model tandem-tiny]
Prefill: a prompt and its one token, median of three. Decode: `batch` answers of 200 tokens at once, one run each.
"""

import argparse
import concurrent.futures
import json
import time
import urllib.request

TEXT = "The road went from the tower to the old bridge. Nobody knew why the lamp was so quiet. "
NUM_TOKENS = 200


def ask(arguments, text, num_tokens):
    """(seconds, usage) of one answer of exactly num_tokens tokens."""
    body = {"model": arguments.model, "temperature": 0, "max_tokens": num_tokens, "ignore_eos": True,
            "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(arguments.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    started = time.monotonic()
    with urllib.request.urlopen(request, timeout=120) as response:
        usage = json.load(response)["usage"]
    return time.monotonic() - started, usage


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="tandem-tiny")
    arguments = parser.parse_args()
    for repeats in (48, 200):
        runs = sorted((ask(arguments, TEXT * repeats + str(i), 1) for i in range(3)), key=lambda run: run[0])
        seconds, usage = runs[1]
        print(f"prefill of {usage['prompt_tokens']} tokens: {seconds:.2f} s, {usage['prompt_tokens'] / seconds:.0f} tokens/s")
    for batch in (1, 8, 32):
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(batch) as pool:
            list(pool.map(lambda i: ask(arguments, f"Hi {i}", NUM_TOKENS), range(batch)))
        seconds = time.monotonic() - started
        print(f"decode, batch {batch}: {batch * NUM_TOKENS / seconds:.0f} tokens/s, {seconds / NUM_TOKENS * 1000:.1f} ms a step")


if __name__ == "__main__":
    main()
