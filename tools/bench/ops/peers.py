#!/usr/bin/env python3
"""oneDNN and PyTorch on the CPU at the shapes of //tools/bench/ops, beside a JSON file that it wrote.

    bazel run //tools/bench/ops -- --json=/tmp/ops.json
    python tools/bench/ops/peers.py --ops /tmp/ops.json        # any Python; a peer that is not there is left out

PyTorch: where it can be imported. oneDNN: where g++ finds Debian's libdnnl-dev (--dnnl FOLDER: unpacked there). Neither has
FP8 weights on this CPU: they get the same weights in BF16, twice the bytes, and sum in any order. "exactness": our time over
the faster peer's, less one: what the fixed order of sums costs, negative where it costs nothing. Times as in
//tools/bench/ops: the clock's, with one thread PyTorch's is the processor's.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

try:
    import torch
except ImportError:
    torch = None

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


LINEAR = re.compile(r"(\d+)x(\d+), (\d+) rows")


def torch_seconds(row, runs, threads):
    """Of the closest thing that PyTorch has, or None."""
    work = None
    if match := LINEAR.fullmatch(row["shape"]):
        out_dim, in_dim, rows = map(int, match.groups())
        work = linear(rows, out_dim, in_dim)
    elif match := re.fullmatch(r"(\d+) of (\d+)", row["shape"]):
        work = top_k(*map(int, match.groups()))
    return work and best_seconds(work, runs, threads)


def build_onednn(folder, dnnl):
    """The program, or None with a reason printed."""
    if shutil.which("g++") is None:
        print("oneDNN left out: no g++")
        return None
    source = pathlib.Path(__file__).with_name("onednn_peer.cc")
    program = os.path.join(folder, "onednn_peer")
    flags = [f"-I{dnnl}/usr/include", f"-L{dnnl}/usr/lib/x86_64-linux-gnu",
             "-Wl,--disable-new-dtags", f"-Wl,-rpath,{dnnl}/usr/lib/x86_64-linux-gnu"]
    built = subprocess.run(["g++", "-O2", "-std=c++17", source, "-o", program, *(flags if dnnl else []), "-ldnnl"],
                           capture_output=True, text=True)
    if built.returncode == 0:
        return program
    print("oneDNN left out: " + built.stderr.strip().splitlines()[0])
    return None


def onednn_seconds(program, row, runs, threads):
    match = LINEAR.fullmatch(row["shape"])
    if not match:
        return None
    told = subprocess.run([program, *match.groups(), str(runs)], env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                          capture_output=True, text=True, check=True)
    return float(told.stdout)


def milliseconds(seconds):
    return f"{seconds * 1e3:9.3f}" if seconds else " " * 9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", required=True, help="what //tools/bench/ops wrote with --json")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dnnl", default="", help="folder where the packages libdnnl-dev and libdnnl2 are unpacked")
    arguments = parser.parse_args()
    with open(arguments.ops, encoding="utf-8") as file:
        ops = json.load(file)
    threads = ops["threads"]
    if torch:
        torch.set_num_threads(threads)
    print(f"PyTorch {torch.__version__ if torch else 'left out: not installed'}, {threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        onednn = build_onednn(folder, arguments.dnnl)
        print(f"{'op':24} {'shape':40} {'ours ms':>9} {'torch ms':>9} {'dnnl ms':>9} {'exactness':>9}")
        for row in ops["rows"]:
            peers = [torch_seconds(row, arguments.runs, threads) if torch else None,
                     onednn_seconds(onednn, row, arguments.runs, threads) if onednn else None]
            known = [seconds for seconds in peers if seconds]
            if known:
                print(f"{row['op']:24} {row['shape']:40} {milliseconds(row['seconds'])} {milliseconds(peers[0])} "
                      f"{milliseconds(peers[1])} {100 * (row['seconds'] / min(known) - 1):+8.0f}%", flush=True)


if __name__ == "__main__":
    main()
