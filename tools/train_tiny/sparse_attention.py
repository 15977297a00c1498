"""Retrieval against context length: keys chosen by the indexer, the last index_topk keys instead, all keys (dense).

usage: python sparse_attention.py CHECKPOINT OUT.json [--samples N] [--lengths 500,1000,..] [--device cuda]
       python sparse_attention.py --plot OUT.json OUT.png
Each sample is a text with six facts, one asked for; right where every token of the answer is the model's argmax. Plotting
needs matplotlib and no torch.
"""

import argparse
import json
import os
import random
import sys

LENGTHS = [300, 500, 1000, 2000, 4000, 8000, 12000, 16000]
WAYS = {"indexer": "the indexer's 128 keys", "last": "the last 128 keys", "dense": "all keys (dense)"}
# Of the same curve twice both are seen: dense lies under the indexer's as a broad band.
LOOKS = {"indexer": {"marker": "o"}, "last": {"marker": "s"}, "dense": {"linewidth": 8, "alpha": 0.35, "zorder": 1}}


def plot(source, target):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = json.load(open(source))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for way, label in WAYS.items():
        points = [(row["length"], 100 * row[way][0] / row[way][1]) for row in results["rows"]]
        axes.plot(*zip(*points), label=label, **LOOKS[way])
    axes.set_xscale("log", base=2)
    axes.set_xticks([row["length"] for row in results["rows"]], [f"{row['length']:,}" for row in results["rows"]])
    axes.tick_params(axis="x", rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("length of the text in tokens")
    axes.set_ylabel("facts retrieved, %")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
    axes.set_title("tandem-tiny: retrieval by what attention may see")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()

    import torch

    import attention
    import held_out
    import scoring
    from config import Config
    from data import Encoder
    from load import load_checkpoint
    from model import TinyModel
    from tasks import retrieval

    by_score = attention.choose

    @torch.no_grad()
    def choose_last(iq, ik, iw, document, rows, topk):
        keys = rows[..., None] - torch.arange(topk, device=rows.device)
        allowed = attention.allowed_keys(document, rows)
        return keys.clamp_min(0), (keys >= 0) & allowed.gather(-1, keys.clamp_min(0))

    model = TinyModel(Config())
    load_checkpoint(model, arguments.checkpoint)
    model.to(arguments.device).eval()
    encoder = Encoder(os.path.join(arguments.checkpoint, "tokenizer.json"))
    frequencies = torch.tensor(model.c.rope_frequencies(), device=arguments.device)
    results = {"samples": arguments.samples, "index_topk": model.c.index_topk, "rows": []}
    for length in map(int, arguments.lengths.split(",")):
        rng = random.Random(2 * length + 1)
        documents = [("", encoder.encode(retrieval.retrieval(rng, int(length * 0.97), 6, 1)))
                     for _ in range(arguments.samples)]
        # Without a flash kernel the cost is the square of the row's length: one document a row.
        packed = held_out.packed(documents, 16384 if arguments.device == "cuda" else max(len(ids) for _, (ids, _) in documents))
        row = {"length": length}
        for way in WAYS:
            attention.choose = choose_last if way == "last" else by_score
            # Dense is plain attention, not a selection of everything.
            with torch.no_grad():
                right, _ = scoring.score(model, packed, 1, frequencies, dense=way == "dense", num_drafts=0)
            row[way] = right[""]
        results["rows"].append(row)
        print(row, flush=True)
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plot"]:
        plot(*sys.argv[2:])
    else:
        main()
