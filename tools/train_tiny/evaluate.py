"""Exact match on held-out documents: every token of every assistant turn must be the model's argmax, given the text before.

usage: python evaluate.py WEIGHTS.safetensors TOKENIZER.json [--samples N] [--topk K,K,...] [--no_quantize]
Teacher-forced: since each document has one right answer, this equals greedy decoding being exactly right. Linears are
rounded to FP8 first, as the checkpoint stores them. Also prints how often the MTP drafts hit.
"""

import argparse
import dataclasses
import random

import torch
from safetensors.torch import load_file

from config import Config
from data import Encoder
from model import Batch, TinyModel, shift
from names import is_fp8
from quantize import dequantize, quantize
from tasks import mixture

parser = argparse.ArgumentParser()
parser.add_argument("weights")
parser.add_argument("tokenizer")
parser.add_argument("--samples", type=int, default=128)
parser.add_argument("--topk", default="")
parser.add_argument("--no_quantize", action="store_true")
parser.add_argument("--device", default="cuda")
parser.add_argument("--only", default="", help="only the tasks whose name holds this")
arguments = parser.parse_args()

ROWS = {4096: 8, 16384: 1}


def rounded(name, tensor):
    if arguments.no_quantize or tensor.ndim < 2 or not is_fp8(name):
        return tensor.float()
    if tensor.ndim == 3:
        return torch.stack([dequantize(*quantize(matrix)) for matrix in tensor.cpu()])
    return dequantize(*quantize(tensor.cpu()))


def load(config):
    model = TinyModel(config)
    model.load_state_dict({name: rounded(name, t) for name, t in load_file(arguments.weights).items()})
    return model.to(arguments.device).eval()


def batches(encoder, draw, count, seed):
    """Rows that each hold whole documents, as Batch and weights."""
    rng = random.Random(seed)
    encoded = [encoder.encode(draw(rng)) for _ in range(count)]
    length = 4096 if max(len(ids) for ids, _ in encoded) <= 4096 else 16384
    rows = [[]]
    for document in encoded:
        if len(document[0]) > length:
            continue
        if sum(len(ids) for ids, _ in rows[-1]) + len(document[0]) > length:
            rows.append([])
        rows[-1].append(document)
    for begin in range(0, len(rows), ROWS[length]):
        group = rows[begin:begin + ROWS[length]]
        shape = (len(group), length)
        ids, positions = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.int32)
        document, weights = torch.full(shape, -1, dtype=torch.int32), torch.zeros(shape)
        for r, row in enumerate(group):
            at = 0
            for n, (doc_ids, doc_weights) in enumerate(row):
                span = slice(at, at + len(doc_ids))
                ids[r, span], weights[r, span] = torch.from_numpy(doc_ids).long(), torch.from_numpy(doc_weights)
                positions[r, span], document[r, span] = torch.arange(len(doc_ids), dtype=torch.int32), n
                at += len(doc_ids)
        yield ids, positions, document, weights


@torch.no_grad()
def score(model, encoder, draw, count, seed, mode):
    frequencies = torch.tensor(model.c.rope_frequencies(), device=arguments.device)
    right = total = 0
    hits, chances = [0, 0], [0, 0]
    for parts in batches(encoder, draw, count, seed):
        ids, positions, document, weights = (part.to(arguments.device) for part in parts)
        batch = Batch(ids, positions, document, None, None, frequencies)
        hidden, drafts, _ = model(batch, mode, 2)
        speaks = (weights == 1) & (document >= 0)
        for j, state in enumerate([hidden] + drafts):
            same = (shift(document, j + 1) == document) & shift(speaks, j + 1)
            same[:, -(j + 1):] = False
            ok = torch.cat([model.logits(rows).argmax(-1)[None] for rows in state]) == shift(ids, j + 1)
            if j:
                hits[j - 1] += int((ok & same).sum())
                chances[j - 1] += int(same.sum())
                continue
            for r in range(ids.shape[0]):
                for n in range(int(document[r].max()) + 1):
                    mine = same[r] & (document[r] == n)
                    right += bool(ok[r][mine].all())
                    total += 1
    return right, total, [h / max(1, c) for h, c in zip(hits, chances)]


def main():
    config = Config()
    encoder = Encoder(arguments.tokenizer)
    topks = [int(k) for k in arguments.topk.split(",") if k] or [config.index_topk]
    for topk in topks:
        model = load(dataclasses.replace(config, index_topk=topk))
        print(f"index_topk {topk}, FP8 weights {not arguments.no_quantize}")
        for number, (name, draw) in enumerate(mixture.EVALUATION.items()):
            if arguments.only not in name:
                continue
            count = arguments.samples if "16k" not in name and "8k" not in name else max(8, arguments.samples // 4)
            right, total, drafts = score(model, encoder, draw, count, 2 * number + 1, "sparse")
            print(f"| {name} | {right}/{total} | {100 * right / total:.1f} | "
                  + " | ".join(f"{100 * draft:.1f}" for draft in drafts) + " |", flush=True)


main()
