"""Trains the tiny checkpoint on one GPU: dense stage, indexer warm-up, sparse stages; stops and resumes at any step.

usage: python train.py --tokenizer tokenizer.json --state STATE_FOLDER --out WEIGHTS.safetensors --minutes M
                       [--total_minutes T]
Runs for M minutes of wall-clock at most and goes on from STATE_FOLDER where one exists; T is the length of the whole
training, by which the schedule is laid out. The weights are written at the end of every piece.
"""

import argparse
import json
import math
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--tokenizer", required=True)
parser.add_argument("--state", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--minutes", type=float, required=True)
parser.add_argument("--total_minutes", type=float, default=16)
parser.add_argument("--workers", type=int, default=13)
parser.add_argument("--no_compile", action="store_true")
arguments = parser.parse_args()
started = time.monotonic()

# Stages by the share of the training's time at which each ends. Batches are tokens a step; retrieval texts grow linearly
# from `retrieval[0]` to `retrieval[1]` tokens within the stage, `long` is the share of rows that are one long text.
STAGES = [
    dict(name="dense short", end=0.10, mode="dense", length=4096, rows=8, retrieval=(300, 300), long=0.0),
    dict(name="dense growing", end=0.45, mode="dense", length=4096, rows=8, retrieval=(300, 3800), long=0.0),
    dict(name="dense long", end=0.76, mode="dense", length=16384, rows=2, retrieval=(3800, 8000), long=0.08),
    dict(name="indexer warm-up", end=0.79, mode="warmup", length=4096, rows=8, retrieval=(3800, 3800), long=0.0),
    dict(name="sparse 4k", end=0.91, mode="sparse", length=4096, rows=8, retrieval=(3800, 3800), long=0.0),
    dict(name="sparse 16k", end=1.00, mode="sparse", length=16384, rows=2, retrieval=(8000, 12000), long=0.3),
]
SECOND_MTP_PASS = 0.30  # from this share on, dense stages chain the MTP layer twice
LR_DECAY_BEGIN = 0.15
LR_END = 0.02


def stage_at(progress):
    return next(i for i, stage in enumerate(STAGES) if progress < stage["end"] or i == len(STAGES) - 1)


def row_settings(progress):
    i = stage_at(progress)
    stage, begin = STAGES[i], STAGES[i - 1]["end"] if i else 0.0
    done = min(1.0, (progress - begin) / (stage["end"] - begin))
    low, high = stage["retrieval"]
    return dict(length=stage["length"], retrieval_tokens_max=int(low + (high - low) * done), long_share=stage["long"])


meta_file = os.path.join(arguments.state, "progress.json")
meta = json.load(open(meta_file)) if os.path.exists(meta_file) else {"seconds": 0.0, "step": 0, "tokens": 0}
total_seconds = arguments.total_minutes * 60

from data import DOCUMENTS_MAX, RowQueue  # noqa: E402  forks before torch is imported

queue = RowQueue(arguments.tokenizer, arguments.workers, 1000 * (meta["step"] + 1) * 2, row_settings(meta["seconds"] / total_seconds))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from config import Config  # noqa: E402
from model import Batch, TinyModel, shift  # noqa: E402
from optimizer import Muon  # noqa: E402

torch.manual_seed(1)
torch.set_float32_matmul_precision("high")
torch._dynamo.config.cache_size_limit = 64
device = torch.device("cuda")
config = Config()
model = TinyModel(config).to(device)
model.train()
names = {p: name for name, p in model.named_parameters()}
parameters = dict(model.named_parameters())


def is_matrix(name, p):
    return p.ndim >= 2 and not any(word in name + "." for word in ("embed_tokens.", "lm_head.", "indexer.", "mlp.gate."))


def adam_lr(name):
    if name == "embed_tokens":
        return 5e-3
    if name == "lm_head":
        return 2.5e-3
    return 3e-3 if "indexer" in name else 2e-3


muon = Muon([p for name, p in parameters.items() if is_matrix(name, p)])
adam = torch.optim.AdamW([{"params": [p], "lr": adam_lr(name), "base_lr": adam_lr(name), "name": name}
                          for name, p in parameters.items() if not is_matrix(name, p)],
                         betas=(0.9, 0.95), weight_decay=0.0, fused=True)
state_file = os.path.join(arguments.state, "state.pt")
if os.path.exists(state_file):
    state = torch.load(state_file, map_location=device)
    model.load_state_dict(state["model"])
    muon.load(state["muon"], parameters)
    adam.load_state_dict(state["adam"])

frequencies = torch.tensor(config.rope_frequencies(), device=device)
if not arguments.no_compile:
    for layer in list(model.layers) + [model.mtp]:
        layer.compile(dynamic=False)
    model.logits = torch.compile(model.logits, dynamic=False)


def make_batch(stage):
    ids, weights, positions, document = queue.take(stage["rows"], stage["length"])
    lengths, longest = [0], 1
    for r, row in enumerate(document):
        ends = np.append(np.flatnonzero(np.diff(row)) + 1, len(row))
        lengths += (r * len(row) + ends).tolist()
        longest = max(longest, int(np.diff(ends, prepend=0).max()))
    size = stage["rows"] * DOCUMENTS_MAX + 1  # one size per stage: compiled code does not depend on the count
    lengths += [lengths[-1]] * (size - len(lengths))
    limit = next(n for n in (1024, 4096, 16384) if n >= longest)
    to = lambda x, dtype: torch.from_numpy(x).pin_memory().to(device, dtype, non_blocking=True)  # noqa: E731
    batch = Batch(to(ids, torch.long), to(positions, torch.int32), to(document, torch.int32),
                  torch.tensor(lengths, dtype=torch.int32, device=device), limit, frequencies)
    return batch, to(weights, torch.float32)


def cross_entropy(hidden, tokens, weights, document, by):
    """Weighted mean over the rows whose token `by` ahead is of the same document."""
    target, weight = shift(tokens, by), shift(weights, by)
    same = (shift(document, by) == document) & (document >= 0)
    same[:, -by:] = False
    loss = F.cross_entropy(model.logits(hidden).flatten(0, 1), target.flatten(), reduction="none")
    weight = (weight * same).flatten()
    return (loss * weight).sum() / weight.sum().clamp_min(1)


def lr_factor(progress, step):
    warm = min(1.0, (step + 1) / 60)
    if progress < LR_DECAY_BEGIN:
        return warm
    return warm * max(LR_END, 1 - (1 - LR_END) * (progress - LR_DECAY_BEGIN) / (1 - LR_DECAY_BEGIN))


def moes():
    return [block.mlp for block in list(model.layers) + [model.mtp.block] if hasattr(block.mlp, "bias")]


def train_step(progress, step):
    stage = STAGES[stage_at(progress)]
    queue.set_stage(**row_settings(progress))
    batch, weights = make_batch(stage)
    mode = stage["mode"]
    passes = 2 if mode == "dense" and progress >= SECOND_MTP_PASS else 1
    hidden, drafts, kl = model(batch, mode, passes)
    rows = (batch.document >= 0).sum().clamp_min(1)
    parts = {}
    if mode == "warmup":
        loss = kl / rows
        parts["kl"] = loss.detach()
    else:
        parts["ce"] = cross_entropy(hidden, batch.tokens, weights, batch.document, 1)
        loss = parts["ce"]
        for j, draft in enumerate(drafts):
            parts[f"mtp{j + 1}"] = cross_entropy(draft, batch.tokens, weights, batch.document, j + 2)
            loss = loss + (0.3, 0.15)[j] * parts[f"mtp{j + 1}"]
        if mode == "sparse":
            parts["kl"] = (kl / rows).detach()
            loss = loss + kl / rows
    loss.backward()
    factor = lr_factor(progress, step)
    for group in adam.param_groups:
        trains = "indexer" in group["name"] if mode == "warmup" else True
        group["lr"] = group["base_lr"] * (1.0 if mode == "warmup" else factor) if trains else 0.0
        if mode == "dense" and "indexer" in group["name"] or mode == "warmup" and not trains:
            for p in group["params"]:
                p.grad = None
    if mode != "warmup":
        for p in muon.momentum:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        muon.step(factor, 0.85 + 0.10 * min(1.0, step / 200))
        with torch.no_grad():
            for moe in moes():
                moe.bias += 0.01 * factor * torch.sign(moe.load.mean() - moe.load)
    for moe in moes():
        moe.load.zero_()
    adam.step()
    for p in model.parameters():
        p.grad = None
    return loss.detach(), parts, batch.tokens.numel(), stage["name"]


def save():
    os.makedirs(arguments.state, exist_ok=True)
    torch.save({"model": model.state_dict(), "muon": muon.state(names), "adam": adam.state_dict()}, state_file + ".new")
    os.replace(state_file + ".new", state_file)
    json.dump(meta, open(meta_file, "w"))
    weights = {name.replace("_orig_mod.", ""): t.detach().to(torch.bfloat16 if t.ndim > 1 else torch.float32).contiguous()
               for name, t in model.state_dict().items()}
    save_file(weights, arguments.out)


limit = arguments.minutes * 60 - 15  # room to write the state
saved_stage = stage_at(meta["seconds"] / total_seconds)
last_print, last_tokens, last_time = time.monotonic(), meta["tokens"], time.monotonic()
# Compilation and start-up do not count as training: the schedule's clock runs in steps of at most a second.
while meta["seconds"] < total_seconds and time.monotonic() - started < limit:
    # A new stage compiles for up to two minutes, in which nothing can stop it: what was learned is written before.
    if stage_at(meta["seconds"] / total_seconds) != saved_stage:
        saved_stage = stage_at(meta["seconds"] / total_seconds)
        save()
    before = time.monotonic()
    loss, parts, tokens, name = train_step(meta["seconds"] / total_seconds, meta["step"])
    if meta["step"] % 4 == 0:
        torch.cuda.synchronize()
    meta["seconds"] += min(time.monotonic() - before, 1.0)
    meta["step"] += 1
    meta["tokens"] += tokens
    if time.monotonic() - last_print > 10:
        now = time.monotonic()
        rate = (meta["tokens"] - last_tokens) / (now - last_time)
        text = " ".join(f"{key} {value.item():.4f}" for key, value in parts.items())
        print(f"{meta['seconds']:.0f}s step {meta['step']} [{name}] {text} {rate / 1000:.0f}k tok/s "
              f"queue {queue.queue.qsize()} mem {torch.cuda.max_memory_allocated() >> 30}G", flush=True)
        if not math.isfinite(loss.item()):
            raise SystemExit("the loss is not finite")
        last_print, last_tokens, last_time = now, meta["tokens"], now
save()
print(f"piece done: {meta}", flush=True)
queue.close()
