#!/usr/bin/env python3
"""PyTorch on the CPU at the shapes of //tools/bench/ops, beside a JSON file that it wrote.

    bazel run //tools/bench/ops -- --json=/tmp/ops.json
    python tools/bench/ops/peers.py --ops /tmp/ops.json        # any Python that has torch

PyTorch has no FP8 weights on a CPU: its linear layers get the same weights in BF16, twice the bytes, through oneDNN, whose
order of sums is free. So the ratio is also what the fixed order costs. Times as in //tools/bench/ops: the clock's, with one
thread the processor's.
"""
import argparse
import json
import re
import time

import torch

ROTATED_BYTES = 256 << 20


def best_seconds(work, runs, threads):
    now = time.thread_time if threads == 1 else time.perf_counter
    best = float("inf")
    work()
    for _ in range(runs):
        start = now()
        work()
        best = min(best, now() - start)
    return best


def linear(rows, out_dim, in_dim):
    copies = ROTATED_BYTES // (2 * out_dim * in_dim) + 1
    weights = [torch.randn(out_dim, in_dim).to(torch.bfloat16) for _ in range(copies)]
    x = torch.randn(rows, in_dim).to(torch.bfloat16)
    turn = 0

    def work():
        nonlocal turn
        turn += 1
        torch.nn.functional.linear(x, weights[turn % copies])

    return work


def top_k(k, count):
    logits = torch.randn(1, count)
    return lambda: torch.topk(logits, k, sorted=False)


def peer_of(row):
    """The closest thing that PyTorch has, or None."""
    if match := re.fullmatch(r"(\d+)x(\d+), (\d+) rows", row["shape"]):
        out_dim, in_dim, rows = map(int, match.groups())
        return linear(rows, out_dim, in_dim)
    if match := re.fullmatch(r"(\d+) of (\d+)", row["shape"]):
        return top_k(*map(int, match.groups()))
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", required=True, help="what //tools/bench/ops wrote with --json")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with open(arguments.ops, encoding="utf-8") as file:
        ops = json.load(file)
    threads = ops["threads"]
    torch.set_num_threads(threads)
    print(f"PyTorch {torch.__version__}, {threads} threads")
    print(f"{'op':24} {'shape':40} {'ours ms':>9} {'torch ms':>9} {'ours is':>9}")
    for row in ops["rows"]:
        work = peer_of(row)
        if work is None:
            continue
        ours = row["seconds"]
        theirs = best_seconds(work, arguments.runs, threads)
        print(f"{row['op']:24} {row['shape']:40} {ours * 1e3:9.3f} {theirs * 1e3:9.3f} {theirs / ours:8.2f}x")


if __name__ == "__main__":
    main()
