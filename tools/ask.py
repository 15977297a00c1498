#!/usr/bin/env python3
"""Asks one question at a chat completions endpoint and prints the answer as it streams. Standard library alone.

usage: ask.py [--url http://127.0.0.1:8000] [--model NAME] [--max_tokens N] [--temperature T] QUESTION
Reasoning, where the model thinks, is printed first, between <think> and </think>.
Exit status: 0 answered, 1 refused or broken off (one line on stderr says why).
"""

import argparse
import http.client
import json
import sys
import urllib.parse


def events(response):
    """The data of each server-sent event; ends at [DONE], raises ConnectionError where the stream ends before."""
    for line in response:
        line = line.rstrip(b"\r\n")
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]":
            return
        yield json.loads(line[len(b"data: "):])
    raise ConnectionError("the stream ended without [DONE]")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="deepseek-v3.2")
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("question")
    arguments = parser.parse_args()
    body = {"model": arguments.model, "max_tokens": arguments.max_tokens, "stream": True,
            "messages": [{"role": "user", "content": arguments.question}]}
    if arguments.temperature is not None:
        body["temperature"] = arguments.temperature
    url = urllib.parse.urlsplit(arguments.url)
    connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        print(f"error: HTTP {response.status}: {response.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    is_thinking = False
    for event in events(response):
        if "error" in event:
            print(f"\nerror: {event['error'].get('message', event['error'])}", file=sys.stderr)
            return 1
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            if delta.get("reasoning_content"):
                print("" if is_thinking else "<think>", delta["reasoning_content"], sep="", end="", flush=True)
                is_thinking = True
            if delta.get("content"):
                print("</think>\n" if is_thinking else "", delta["content"], sep="", end="", flush=True)
                is_thinking = False
    print("</think>" if is_thinking else "")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
