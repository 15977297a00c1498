"""What FP8 latents cost beside BF16 latents, on the trained weights: logits of held-out dialogues, by the reference.

usage: $(tools/python/venv.sh) -m tools.reference.kv_cache_dtype [--checkpoint FOLDER] [--dialogues N] [--tokens N]
Both runs have every other rounding of the served model. Of the tokens that the assistant wrote: d = 1 - 2<x,y> /
(<x,x> + <y,y>) over all logits and the median of rows, mean KL, and how often the most likely token is the same.
"""

import argparse
import random
import sys
from pathlib import Path

import numpy as np

from tools.reference.checkpoint import Checkpoint
from tools.reference.model import Model
from tools.reference.model_goldens import BF16_LATENT, distance

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "train_tiny"))

from data import Encoder  # noqa: E402
from tasks import arithmetic, retrieval, tool_calls  # noqa: E402

TASKS = {
    "percent, thinking": lambda rng: arithmetic.percent(rng, True, True),
    "tools 4, chat": lambda rng: tool_calls.tools(rng, True, False, 4),
    "retrieval": lambda rng: retrieval.retrieval(rng, 400, 6, 3),
}


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "checkpoints" / "tandem-tiny")
    parser.add_argument("--dialogues", type=int, default=4, help="of each task")
    parser.add_argument("--tokens", type=int, default=600, help="longest dialogue; longer ones are passed over")
    arguments = parser.parse_args()
    loaded = Checkpoint(arguments.checkpoint)
    encoder = Encoder(str(arguments.checkpoint / "tokenizer.json"))
    print("| task | rows | d | median row d | KL | same argmax |\n|---|---|---|---|---|---|")
    for number, (task, draw) in enumerate(TASKS.items()):
        rng, fp8, bf16, done = random.Random(2 * number + 1), [], [], 0
        while done < arguments.dialogues:
            ids, weights = encoder.encode(draw(rng))
            if len(ids) > arguments.tokens:
                continue
            done += 1
            rows = np.flatnonzero(weights[1:] == 1)
            fp8.append(Model(loaded).forward(ids).logits[rows])
            bf16.append(Model(loaded, BF16_LATENT).forward(ids).logits[rows])
        x, y = np.concatenate(fp8), np.concatenate(bf16)
        p, q = log_softmax(y), log_softmax(x)
        kl = np.mean(np.sum(np.exp(p) * (p - q), -1))
        print(f"| {task} | {len(x)} | {distance(x, y):.1e} | {np.median(distance(x, y, -1)):.1e} | {kl:.1e} | "
              f"{100 * np.mean(x.argmax(-1) == y.argmax(-1)):.2f} % |", flush=True)


if __name__ == "__main__":
    main()
