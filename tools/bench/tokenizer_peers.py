#!/usr/bin/env python3
"""Hugging Face tokenizers and tiktoken on the texts of //router/tokenizer:tokenizer_benchmark, beside what it wrote.

    bazel run //router/tokenizer:tokenizer_benchmark -- --benchmark_filter=BM_Encode \
        --benchmark_out=/tmp/tokenizer.json --benchmark_out_format=json
    python tools/bench/tokenizer_peers.py --ours /tmp/tokenizer.json      # any Python that has tokenizers and tiktoken

One thread each, its own processor time, the best of a few runs; MB/s of UTF-8. The vocabulary is DeepSeek's
tokenizer.json in TANDEM_SHARED_DIR.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402

SHARED = Path(os.environ.get("TANDEM_SHARED_DIR", Path(__file__).resolve().parents[3] / "shared"))
VOCABULARY = SHARED / "data/tokenizer/deepseek-v3-base/tokenizer.json"
TEXTS = {0: "data/chat/test_output_search_wo_date.txt", 1: "data/chat/test_input.json"}  # by the benchmark's kind
RUNS = 5


def text_of(kind, num_bytes):
    """The file's text, as often as it takes to have that many bytes."""
    unit = (SHARED / TEXTS[kind]).read_text()
    return unit * -(-num_bytes // len(unit.encode()))


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def tiktoken_encoding(vocabulary):
    """The vocabulary's ordinary tokens, ranked by id; its patterns as alternatives of one."""
    letters = byte_letters()
    ranks = {
        bytes(letters[letter] for letter in token): number
        for token, number in vocabulary["model"]["vocab"].items()
        if all(letter in letters for letter in token)
    }
    steps = vocabulary["pre_tokenizer"]["pretokenizers"]
    pattern = "|".join(step["pattern"]["Regex"] for step in steps if step["type"] == "Split")
    return tiktoken.Encoding("deepseek", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def megabytes_a_second(encode, text):
    best = float("inf")
    encode(text)
    for _ in range(RUNS):
        start = time.thread_time()
        encode(text)
        best = min(best, time.thread_time() - start)
    return len(text.encode()) / best / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", type=Path, required=True, help="what the benchmark wrote with --benchmark_out")
    arguments = parser.parse_args()
    ours = {run["name"]: run for run in json.loads(arguments.ours.read_text())["benchmarks"]}
    hugging_face = tokenizers.Tokenizer.from_file(str(VOCABULARY))
    encoding = tiktoken_encoding(json.loads(VOCABULARY.read_text()))
    print("| text | bytes | ours MB/s | Hugging Face | tiktoken | ours / Hugging Face |\n|---|---|---|---|---|---|")
    for name, run in ours.items():
        fields = dict(field.split(":") for field in name.split("/")[1:])
        kind, num_bytes = int(fields["kind"]), int(fields["bytes"])
        if kind not in TEXTS:
            continue
        text = text_of(kind, num_bytes)
        peers = [
            megabytes_a_second(lambda t: hugging_face.encode(t, add_special_tokens=False), text),
            megabytes_a_second(encoding.encode_ordinary, text),
        ]
        mine = run["bytes_per_second"] / 1e6
        print(
            f"| {Path(TEXTS[kind]).name} | {len(text.encode())} | {mine:.1f} | {peers[0]:.1f} | {peers[1]:.1f} "
            f"| {mine / peers[0]:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
