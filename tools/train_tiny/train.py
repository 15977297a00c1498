"""Trains the tiny checkpoint on one GPU, from random weights or on from a checkpoint; stops and resumes at any step.

usage: python train.py --tokenizer tokenizer.json --out FOLDER --minutes M [--plan first|long|tools|types|drafts] [--init CHECKPOINT] [--only mtp]
                       [--state STATE_FOLDER --total_minutes T]
Runs for M minutes of wall-clock at most, start-up, evaluation and export included, and writes the checkpoint to FOLDER.
With --state a training of T minutes is made of pieces: it goes on from STATE_FOLDER where that exists. Without, the piece
is the training, and FOLDER/mid is written at 60 % as well, so that a run that is cut loses little.
"""

import argparse
import json
import math
import os
import shutil
import time

parser = argparse.ArgumentParser()
parser.add_argument("--tokenizer", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--minutes", type=float, required=True)
parser.add_argument("--plan", default="first")
parser.add_argument("--init", default="")
parser.add_argument("--state", default="")
parser.add_argument("--total_minutes", type=float, default=0)
parser.add_argument("--lr", type=float, default=0, help="learning rate factor at the start in place of the plan's")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", default="", help="the module that is trained (mtp); all others keep their weights")
parser.add_argument("--workers", type=int, default=13)
parser.add_argument("--samples", type=int, default=64, help="of each task in the evaluation")
parser.add_argument("--length", type=int, default=0, help="of rows, in place of the plan's: to try the program on a CPU")
parser.add_argument("--no_compile", action="store_true")
arguments = parser.parse_args()
if bool(arguments.state) != bool(arguments.total_minutes):
    parser.error("--state and --total_minutes go together")
started = time.monotonic()
FINISH_SECONDS = 18  # for the last evaluation and export
EVALUATE_AT = [0.4, 0.72]
EXPORT_AT = 0.6

import concurrent.futures  # noqa: E402
import dataclasses  # noqa: E402
import multiprocessing  # noqa: E402

import held_out  # noqa: E402
from data import DOCUMENTS_MAX, RowQueue  # noqa: E402  forks before torch is imported
from plans import PLANS, lr_factor, retrieval_tokens_max, stage_at  # noqa: E402

plan = PLANS[arguments.plan]
changes = {"lr_peak": arguments.lr} if arguments.lr else {}
if arguments.length:
    small = lambda count: min(count, arguments.length // 4)  # noqa: E731
    changes["stages"] = tuple(dataclasses.replace(
        stage, length=arguments.length, index_rows=small(stage.index_rows), sparse_rows=small(stage.sparse_rows))
        for stage in plan.stages)
plan = dataclasses.replace(plan, **changes)
meta_file = os.path.join(arguments.state, "progress.json")
meta = json.load(open(meta_file)) if arguments.state and os.path.exists(meta_file) else {
    "seconds": 0.0, "step": 0, "tokens": 0}
queue = RowQueue(arguments.tokenizer, arguments.workers, 2 * (1000 * arguments.seed + 100_000 * meta["step"]),
                 plan.stages[0].length, plan.stages[0].draw, 300, plan.prompt_factor)
early = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
evaluation_rows = early.submit(held_out.rows, arguments.tokenizer, arguments.samples, plan.stages[-1].length)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import attention  # noqa: E402
import export  # noqa: E402
import scoring  # noqa: E402
from config import Config  # noqa: E402
from load import load_checkpoint  # noqa: E402
from model import Batch, Indexer, TinyModel, shift  # noqa: E402
from optimizer import Muon  # noqa: E402

torch.manual_seed(arguments.seed)
torch.set_float32_matmul_precision("high")
torch._dynamo.config.cache_size_limit = 64
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
config = Config()
model = TinyModel(config)
if arguments.init:
    load_checkpoint(model, arguments.init)
model.to(device)
for name, p in model.named_parameters():
    p.requires_grad_(name.startswith(arguments.only))
parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
if not parameters:
    parser.error(f"--only {arguments.only} names no module")
names = {p: name for name, p in parameters.items()}
frequencies = torch.tensor(config.rope_frequencies(), device=device)
blocks = list(model.layers) + [model.mtp.block]
moes = [block.mlp for block in blocks if hasattr(block.mlp, "bias")]
trained_moes = [moe for moe in moes if moe.gate.requires_grad]


def is_matrix(name, p):
    return p.ndim >= 2 and not any(word in name + "." for word in ("embed_tokens.", "lm_head.", "indexer.", "mlp.gate."))


def adam_lr(name):
    return {"embed_tokens": 5e-3, "lm_head": 2.5e-3}.get(name, 2e-3)


muon = Muon([p for name, p in parameters.items() if is_matrix(name, p)])
adam = torch.optim.AdamW([{"params": [p], "lr": adam_lr(name), "base_lr": adam_lr(name)}
                          for name, p in parameters.items() if not is_matrix(name, p)],
                         betas=(0.9, 0.95), weight_decay=0.0, fused=device.type == "cuda")
state_file = os.path.join(arguments.state, "state.pt")
if arguments.state and os.path.exists(state_file):
    state = torch.load(state_file, map_location=device)
    model.load_state_dict(state["model"])
    muon.load(state["muon"], parameters)
    adam.load_state_dict(state["adam"])

if not arguments.no_compile:
    for block in blocks:
        block.before = torch.compile(block.before, dynamic=False)
        block.after = torch.compile(block.after, dynamic=False)
    model.logits = torch.compile(model.logits, dynamic=False)
    attention.compiled_index_scores = torch.compile(attention.index_scores, dynamic=False)


def say(text):
    print(f"{time.monotonic() - started:.0f}s {text}", flush=True)


def choose_rows(weights, positions, document, count):
    """[count] of one row, in any order: half of what the assistant wrote, half of all, where more than topk keys are seen."""
    rng = np.random.default_rng()
    far = (positions >= config.index_topk) & (document >= 0)
    wish = rng.random(len(weights)) + 2.0 * (far & (weights == 1)) + 1.0 * far
    spoken = np.argpartition(-wish, count // 2)[:count // 2]
    wish = rng.random(len(weights)) + 1.0 * far
    wish[spoken] = -1
    return rng.permutation(np.concatenate((spoken, np.argpartition(-wish, count - count // 2)[:count - count // 2])))


def make_batch(stage, wants_health):
    ids, weights, positions, document = queue.take(stage.rows, stage.length)
    lengths, longest = [0], 1
    for r, row in enumerate(document):
        ends = np.append(np.flatnonzero(np.diff(row)) + 1, len(row))
        lengths += (r * len(row) + ends).tolist()
        longest = max(longest, int(np.diff(ends, prepend=0).max()))
    lengths += [lengths[-1]] * (stage.rows * DOCUMENTS_MAX + 1 - len(lengths))

    def sent(x, dtype):
        x = torch.from_numpy(np.ascontiguousarray(x))
        return (x.pin_memory() if device.type == "cuda" else x).to(device, dtype, non_blocking=True)

    count = max(stage.sparse_rows, stage.index_rows)
    rows = None
    if count:
        rows = sent(np.stack([choose_rows(*row, count) for row in zip(weights, positions, document)]), torch.long)
    batch = Batch(sent(ids, torch.long), sent(positions, torch.int32), sent(document, torch.int32), frequencies,
                  sent(np.array(lengths), torch.int32), longest,
                  sparse_rows=rows[:, :stage.sparse_rows] if stage.sparse_rows else None,
                  index_rows=rows[:, :stage.index_rows] if stage.index_rows else None, wants_health=wants_health)
    return batch, sent(weights, torch.float32)


def cross_entropy(hidden, tokens, weights, document, by):
    """Weighted mean over the rows whose token `by` ahead is of the same document."""
    target, weight = shift(tokens, by), shift(weights, by)
    same = (shift(document, by) == document) & (document >= 0)
    same[:, -by:] = False
    loss = F.cross_entropy(model.logits(hidden).flatten(0, 1), target.flatten(), reduction="none")
    weight = (weight * same).flatten()
    return (loss * weight).sum() / weight.sum().clamp_min(1)


def train_step(progress, step, wants_health):
    stage = plan.stages[stage_at(plan, progress)]
    queue.set_stage(stage.length, stage.draw, retrieval_tokens_max(plan, progress))
    batch, weights = make_batch(stage, wants_health)
    hidden, drafts, kl, healths = model(batch, 2 if progress >= plan.second_mtp_pass else 1)
    parts = {"ce": cross_entropy(hidden, batch.tokens, weights, batch.document, 1)}
    loss = parts["ce"]
    for j, draft in enumerate(drafts):
        parts[f"mtp{j + 1}"] = cross_entropy(draft, batch.tokens, weights, batch.document, j + 2)
        loss = loss + plan.mtp_weights[j] * parts[f"mtp{j + 1}"]
    if stage.index_rows:
        kl = kl / batch.index_rows.numel()
        parts["kl"] = kl.detach()
        loss = loss + kl
    loss.backward()
    factor = lr_factor(plan, progress, step)
    for group in adam.param_groups:
        group["lr"] = group["base_lr"] * factor
    muon.step(factor, 0.85 + 0.10 * min(1.0, step / 200))
    adam.step()
    with torch.no_grad():
        for moe in trained_moes:
            moe.bias += 0.01 * factor * torch.sign(moe.load.mean() - moe.load)
            moe.load.zero_()
    for p in names:
        p.grad = None
    return loss.detach(), parts, batch.tokens.numel(), stage.name, healths


def tell_health(healths):
    """Prints each indexer's share of scores that are not zero and the attention mass it finds; a dead one starts anew."""
    if healths[0] is None:
        return
    values = torch.stack(healths).tolist()
    say("index: alive " + " ".join(f"{alive:.3f}" for alive, _ in values) + ", mass found "
        + " ".join(f"{mass:.3f}" for _, mass in values))
    for i, (block, (alive, _)) in enumerate(zip(blocks, values)):
        if alive < 0.01:
            say(f"the indexer of block {i} is dead: it starts again from new weights")
            fresh = dict(Indexer(config).to(device).named_parameters())
            for name, p in block.self_attn.indexer.named_parameters():
                p.data.copy_(fresh[name])
                adam.state.pop(p, None)


def evaluate(what):
    begin = time.monotonic()
    right, drafts = scoring.score(model, evaluation_rows, plan.stages[-1].rows, frequencies)
    for moe in moes:
        moe.load.zero_()
    say(f"{what}, {time.monotonic() - begin:.1f}s: {scoring.table(right, drafts)}")
    return {"tasks": right, "drafts": drafts}


def export_to(folder):
    export.write({name: t.detach().cpu() for name, t in model.state_dict().items()}, arguments.tokenizer, folder)
    say(f"written: {folder}")


def save_state():
    if not arguments.state:
        return
    os.makedirs(arguments.state, exist_ok=True)
    torch.save({"model": model.state_dict(), "muon": muon.state(names), "adam": adam.state_dict()}, state_file + ".new")
    os.replace(state_file + ".new", state_file)
    json.dump(meta, open(meta_file, "w"))


evaluation_rows = evaluation_rows.result()
early.shutdown()
os.makedirs(arguments.out, exist_ok=True)
results = {"plan": arguments.plan, "evaluations": []}
say(f"ready: {device}, {len(evaluation_rows)} rows of evaluation")
if arguments.init:
    results["evaluations"].append({"progress": 0, **evaluate("before")})
limit = started + arguments.minutes * 60 - FINISH_SECONDS
total_seconds = arguments.total_minutes * 60
first_step, waiting, mid_due = meta["step"], list(EVALUATE_AT), not arguments.state
begin, last_print, last_tokens, last_time = time.monotonic(), time.monotonic(), meta["tokens"], time.monotonic()
while time.monotonic() < limit:
    now = time.monotonic()
    if arguments.state:  # the schedule's clock runs in steps of at most a second: compiling does not count as training
        progress = meta["seconds"] / total_seconds
    else:
        progress = (now - begin) / (limit - begin)
    if progress >= 1:
        break
    prints = now - last_print > 10
    loss, parts, tokens, name, healths = train_step(progress, meta["step"], prints)
    if meta["step"] % 4 == 0 and device.type == "cuda":
        torch.cuda.synchronize()
    meta["seconds"] += min(time.monotonic() - now, 1.0)
    meta["step"] += 1
    meta["tokens"] += tokens
    if meta["step"] == first_step + 2:
        begin = last_print = last_time = time.monotonic()
        last_tokens = meta["tokens"]
        say("compiled")
        continue
    if prints:
        rate = (meta["tokens"] - last_tokens) / (time.monotonic() - last_time)
        text = " ".join(f"{key} {value.item():.4f}" for key, value in parts.items())
        memory = torch.cuda.max_memory_allocated() >> 30 if device.type == "cuda" else 0
        say(f"{progress:.3f} step {meta['step']} [{name}] {text} {rate / 1000:.0f}k tok/s queue {queue.queue.qsize()} "
            f"mem {memory}G")
        if not math.isfinite(loss.item()):
            raise SystemExit("the loss is not finite")
        tell_health(healths)
        last_print, last_tokens, last_time = time.monotonic(), meta["tokens"], time.monotonic()
    if waiting and progress >= waiting[0]:
        waiting.pop(0)
        results["evaluations"].append({"progress": progress, **evaluate(f"at {progress:.2f}")})
    if mid_due and progress >= EXPORT_AT:
        mid_due = False
        export_to(os.path.join(arguments.out, "mid"))
save_state()
queue.close()
say(f"trained: {meta}")
export_to(arguments.out)
shutil.rmtree(os.path.join(arguments.out, "mid"), ignore_errors=True)
load_checkpoint(model, arguments.out)  # FP8, as shipped
results["evaluations"].append({"progress": 1, **evaluate("the checkpoint as written")})
results["meta"] = meta
json.dump(results, open(os.path.join(arguments.out, "evaluation.json"), "w"), indent=1)
