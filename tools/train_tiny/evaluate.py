"""Teacher-forced exact match of a checkpoint on held-out seeds (scoring.py), weights as the checkpoint stores them.

usage: python evaluate.py CHECKPOINT [--samples N] [--topk K] [--attention indexer|last|dense] [--only TASK] [--seed S]
                          [--device cuda] [--length 16384]
--attention last: each token sees its last K instead of the indexer's choice; dense: all. Prints a row a task, and how often
the first, first two and first three chained MTP drafts hit.
"""

import argparse
import dataclasses
import os

import torch

import attention
import held_out
import scoring
from config import Config
from load import load_checkpoint
from model import TinyModel


@torch.no_grad()
def choose_last(iq, ik, iw, document, rows, topk):
    """In place of attention.choose: the last topk keys of each row."""
    keys = rows[..., None] - torch.arange(topk, device=rows.device)
    allowed = attention.allowed_keys(document, rows)
    valid = (keys >= 0) & allowed.gather(-1, keys.clamp_min(0))
    return keys.clamp_min(0), valid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--topk", type=int, default=Config.index_topk)
    parser.add_argument("--attention", choices=["indexer", "last", "dense"], default="indexer")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=held_out.SEED)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--length", type=int, default=16384, help="of the rows that documents are packed into")
    arguments = parser.parse_args()
    topk = arguments.length if arguments.attention == "dense" else arguments.topk
    if arguments.attention == "last":
        attention.choose = choose_last
    model = TinyModel(dataclasses.replace(Config(), index_topk=topk))
    load_checkpoint(model, arguments.checkpoint)
    model.to(arguments.device).eval()
    made = held_out.rows(os.path.join(arguments.checkpoint, "tokenizer.json"), arguments.samples, arguments.length,
                         arguments.only, arguments.seed)
    frequencies = torch.tensor(model.c.rope_frequencies(), device=arguments.device)
    with torch.no_grad():
        right, drafts = scoring.score(model, made, 1, frequencies)
    print("| task | right | asked | % |\n|---|---|---|---|")
    for task, (count, asked) in right.items():
        print(f"| {task} | {count} | {asked} | {100 * count / asked:.1f} |")
    print("drafts that hit: " + " ".join(f"{100 * share:.1f} %" for share in drafts))


if __name__ == "__main__":
    main()
