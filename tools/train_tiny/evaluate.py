"""Teacher-forced exact match of a checkpoint on held-out seeds (scoring.py), weights as the checkpoint stores them.

usage: python evaluate.py CHECKPOINT [--samples N] [--only TASK] [--seed S] [--temperature T] [--device cuda] [--length 16384]
Prints a row a task, and how often the first, first two and first three chained MTP drafts hit, greedily or, with
--temperature, drawn with the model's noise. sparse_attention.py compares ways to choose the keys.
"""

import argparse
import os

import torch

import held_out
import scoring
from config import Config
from load import load_checkpoint
from model import TinyModel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=held_out.SEED)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--length", type=int, default=16384, help="of the rows that documents are packed into")
    arguments = parser.parse_args()
    model = TinyModel(Config())
    load_checkpoint(model, arguments.checkpoint)
    model.to(arguments.device).eval()
    made = held_out.rows(os.path.join(arguments.checkpoint, "tokenizer.json"), arguments.samples, arguments.length,
                         arguments.only, arguments.seed)
    frequencies = torch.tensor(model.c.rope_frequencies(), device=arguments.device)
    with torch.no_grad():
        right, drafts = scoring.score(model, made, 1, frequencies, arguments.temperature)
    print("| task | right | asked | % |\n|---|---|---|---|")
    for task, (count, asked) in right.items():
        print(f"| {task} | {count} | {asked} | {100 * count / asked:.1f} |")
    print("drafts that hit: " + " ".join(f"{100 * share:.1f} %" for share in drafts)
          + f", tokens a step {1 + sum(drafts):.2f}")


if __name__ == "__main__":
    main()
