"""Golden logits, choices and stages of checkpoints: tests/golden/model/<name>.safetensors.

Two kinds of runs. The whole model, whose FP8 and top-k steps amplify FP32's rounding until rows differ visibly
(README.md, Chaos): its bounds are coarse. And each layer alone, fed with the embeddings: bounds are tight, and a
mistake anywhere in the layer shows.
"""

import json
import random
import sys
from dataclasses import dataclass

import numpy as np

from tools.reference import checkpoint, make_goldens, model, safetensors_io
from tools.reference.safetensors_io import bf16, e4m3, f32, i32


@dataclass(frozen=True)
class Golden:
    """What one file holds of one checkpoint: of tools/make_checkpoint, or the trained checkpoints/tandem-tiny."""

    checkpoint: str
    contexts: tuple
    has_whole: bool = True  # all layers, and the MTP layer on top
    has_layers: bool = True  # each layer alone
    stage_context: int = 0  # the context whose layers are stored stage by stage; 0: none
    has_bounds: bool = True  # what noise does to each run; costs six more passes each
    switches: model.Switches = model.Switches()
    is_dialogue: bool = False  # tokens are a dialogue's, as the trained model knows them; else they are random


BF16_LATENT = model.Switches(fp8_latent=False)  # the records of kv_cache_dtype bfloat16
INDEX_CACHE = model.Switches(index_topk_pattern="FS")
DENSE_TO_120 = model.Switches(dense_attention_max_context=120)

GOLDENS = {
    "v32-micro": Golden("v32-micro", (1, 16, 17, 40, 200), stage_context=40),
    "v32-tiny": Golden("v32-tiny", (1, 64, 65, 200, 1000), stage_context=65),
    "v32-tiny-calm": Golden("v32-tiny-calm", (1, 64, 65, 200, 1000), has_layers=False),
    "v32-tiny-bf16": Golden("v32-tiny", (65, 200), has_whole=False, switches=BF16_LATENT),
    "v32-tiny-calm-bf16": Golden("v32-tiny-calm", (65, 1000), has_layers=False, switches=BF16_LATENT),
    # Beyond original_max_position_embeddings and beyond 64 pages. Bounds are those of 1,000 tokens (bf16 layers: 200):
    # that a context is long is no reason to be further off.
    "v32-tiny-4097": Golden("v32-tiny", (4097,), has_whole=False, has_bounds=False),
    "v32-tiny-calm-4097": Golden("v32-tiny-calm", (4097,), has_layers=False, has_bounds=False),
    "v32-tiny-calm-bf16-4097": Golden(
        "v32-tiny-calm", (4097,), has_layers=False, has_bounds=False, switches=BF16_LATENT
    ),
    # Trained weights, with rows beyond index_topk (128) even in the shorter context.
    "tandem-tiny": Golden("tandem-tiny", (135, 200), stage_context=135, is_dialogue=True),
    "tandem-tiny-bf16": Golden(
        "tandem-tiny", (200,), has_layers=False, switches=BF16_LATENT, is_dialogue=True
    ),
    # The second layer's choices are left to the first.
    "v32-micro-index-cache": Golden("v32-micro", (200,), has_layers=False, switches=INDEX_CACHE),
    # Rows of 17 to 120 tokens, which would choose 16 of them, attend to all.
    "v32-micro-dense": Golden("v32-micro", (200,), has_layers=False, switches=DENSE_TO_120),
}
LOGIT_COLUMNS = 1024
MAX_POSITIONS = 16
# Kinds of bounds: of implementations that sum in FP32, and of those with Hopper's FP8 instructions.
NOISE = {"bounds": model.FP32_ERROR, "fp8_bounds": model.FP8_ERROR}
NOISY_RUNS = 3
STEADY_MARGIN = 1e-3  # of a choice that noise does not change: index logits over the largest, router scores
SMALLEST_MEDIAN_BOUND = 2e-4  # where a context has few rows, noise may happen to hit none of them

# How each captured stage is stored.
STAGE_TYPES = {
    "input": bf16, "qr": bf16, "q": bf16, "c": bf16, "k_rope": bf16, "index_q": e4m3, "index_q_scale": f32,
    "index_k": e4m3, "index_k_scale": f32, "index_w": f32, "index_logits": f32, "selected": i32, "attention": bf16,
    "ffn_input": bf16, "residual": bf16, "router_ids": i32, "router_weights": f32, "ffn": bf16,
}  # fmt: skip


def token_ids(n, vocab_size):
    """A linear congruential generator: x' = (1664525 x + 1013904223) mod 2^32 from 12345 + n; token = x' >> 8 mod V."""
    x, tokens = 12345 + n, []
    for _ in range(n):
        x = (1664525 * x + 1013904223) % 2**32
        tokens.append((x >> 8) % vocab_size)
    return np.array(tokens)


def dialogue_ids(n, checkpoint_folder):
    """The first n tokens of a held-out dialogue with tools (tools/train_tiny/tasks)."""
    folder = str(make_goldens.GOLDEN.parents[1] / "tools" / "train_tiny")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from data import Encoder
    from tasks import tool_calls

    ids, _ = Encoder(str(checkpoint_folder / "tokenizer.json")).encode(tool_calls.tools(random.Random(1), True, True, 4))
    return ids[:n].astype(np.int64)


def positions_of(n):
    """At most 16 rows: both ends, both sides of page borders and of index_topk, and some between."""
    wanted = [0, 1, 15, 16, 17, 62, 63, 64, 65, 127, 128, 191, 500, 959, 2047, 2048, 3000, 4095, n - 2, n - 1]
    return sorted({p for p in wanted if 0 <= p < n})[-MAX_POSITIONS:]


def distance(x, y, axis=None):
    """d = 1 - 2<x,y> / (<x,x> + <y,y>): over all of them, or along an axis."""
    return 1 - 2 * np.sum(x * y, axis=axis) / (np.sum(x * x, axis=axis) + np.sum(y * y, axis=axis))


def _top_two_margin(logits):
    top = np.partition(logits, -2, axis=-1)[:, -2:]
    return top[:, 1] - top[:, 0]


def _is_steady(out, num_layers):
    """Whether the row's own choices of experts and positions are beyond noise in each of the first layers."""
    margins = np.minimum(np.min(out.index_margin[:num_layers], 0), np.min(out.router_margin[:num_layers], 0))
    return margins >= STEADY_MARGIN


def _bounds(noisy_runs, logits, is_steady, positions):
    """What noise does to a run's logits, with some room: for an implementation that sums in another order.

    d and median_row_d: over the stored logits, and the median of single rows, which does not feel the few where noise
    makes another choice of experts or positions. argmax_other: the share of rows whose argmax may be another.
    decided_gap: where the two largest logits of a steady row are further apart, its argmax may not.
    """
    stored = logits[positions][:, :LOGIT_COLUMNS]
    gaps = _top_two_margin(logits)
    d, median, share, gap = 0.0, 0.0, 0.0, 0.0
    for noisy in noisy_runs:
        is_other = noisy.argmax(1) != logits.argmax(1)
        d = max(d, distance(noisy[positions][:, :LOGIT_COLUMNS], stored))
        median = max(median, float(np.median(distance(noisy[positions], logits[positions], axis=-1))))
        share = max(share, float(np.mean(is_other)))
        gap = max(gap, *gaps[is_other & is_steady], 0.0)
    return {
        "d": 2 * d,
        "median_row_d": max(2 * median, SMALLEST_MEDIAN_BOUND),
        "argmax_other": min(1.0, 1.5 * share + 2 / len(logits)),
        "decided_gap": 2 * gap,
    }


def _outputs(out, positions):
    return {
        "logits": f32(out.logits[positions][:, :LOGIT_COLUMNS]),
        "argmax": i32(out.logits.argmax(1)),
        "top2_margin": f32(_top_two_margin(out.logits)),
        "index_margin": f32(out.index_margin),
        "router_margin": f32(out.router_margin),
    }


def _noisy_models(golden, loaded, size):
    for seed in range(NOISY_RUNS):
        yield model.Model(loaded, golden.switches, noise=np.random.default_rng(seed), noise_size=size)


def _whole(golden, loaded, tokens, positions, with_stages):
    """-> ({tensor name: Tensor}, {kind: {run: bounds}}) of the runs `whole` and `mtp`."""
    reference = model.Model(loaded, golden.switches)
    out = reference.forward(tokens)
    next_tokens = np.append(tokens[1:], out.logits[-1].argmax())
    mtp_logits = reference.forward_mtp(out.final_hidden, next_tokens, out)
    tensors = {f"whole.{name}": t for name, t in _outputs(out, positions).items()}
    tensors |= {
        "mtp.tokens": i32(next_tokens),
        "mtp.logits": f32(mtp_logits[positions][:, :LOGIT_COLUMNS]),
        "mtp.argmax": i32(mtp_logits.argmax(1)),
        "mtp.top2_margin": f32(_top_two_margin(mtp_logits)),
    }
    if with_stages:
        tensors["whole.final_hidden"] = bf16(out.final_hidden)
    if not golden.has_bounds:
        return tensors, {}
    bounds, num_layers = {}, loaded.config.num_hidden_layers
    for kind, size in NOISE.items():
        noisy, noisy_mtp = [], []
        for noisy_model in _noisy_models(golden, loaded, size):
            noisy_out = noisy_model.forward(tokens)
            noisy.append(noisy_out.logits)
            noisy_mtp.append(noisy_model.forward_mtp(noisy_out.final_hidden, next_tokens, noisy_out))
        bounds[kind] = {
            "whole": _bounds(noisy, out.logits, _is_steady(out, num_layers), positions),
            "mtp": _bounds(noisy_mtp, mtp_logits, _is_steady(out, num_layers + 1), positions),
        }
    return tensors, bounds


def _layer_alone(golden, loaded, layer, tokens, positions, with_stages):
    """-> ({tensor name: Tensor}, {kind: {run: bounds}}) of the run `alone<layer>`."""
    run, stages = f"alone{layer}", {}
    out = model.Model(loaded, golden.switches).forward(tokens, stages.__setitem__, [layer])
    tensors = {f"{run}.{name}": t for name, t in _outputs(out, positions).items()}
    if with_stages:
        for name, value in stages.items():
            prefix, _, stage = name.partition(".")
            if prefix == f"L{layer}":
                tensors[f"{run}.{stage}"] = STAGE_TYPES[stage](value[positions])
    if not golden.has_bounds:
        return tensors, {}
    bounds = {}
    for kind, size in NOISE.items():
        noisy = [noisy.forward(tokens, layers=[layer]).logits for noisy in _noisy_models(golden, loaded, size)]
        bounds[kind] = {run: _bounds(noisy, out.logits, _is_steady(out, 1), positions)}
    return tensors, bounds


def make_context(golden, loaded, tokens):
    """-> ({tensor name: Tensor}, {kind: {run: bounds}}) of one context."""
    c, n = loaded.config, len(tokens)
    positions = positions_of(n)
    tensors, bounds = {"tokens": i32(tokens), "positions": i32(positions)}, {kind: {} for kind in NOISE}
    with_stages = n == golden.stage_context
    runs = []
    if golden.has_whole:
        runs.append(_whole(golden, loaded, tokens, positions, with_stages))
    for layer in range(c.num_hidden_layers if golden.has_layers else 0):
        runs.append(_layer_alone(golden, loaded, layer, tokens, positions, with_stages))
    for run_tensors, run_bounds in runs:
        tensors |= run_tensors
        for kind, of_kind in run_bounds.items():
            bounds[kind] |= {f"c{n}.{run}": bound for run, bound in of_kind.items()}
    return {f"c{n}.{name}": t for name, t in tensors.items()}, bounds


def _share_gaps(bounds):
    """One gap for all contexts of a run: the short ones have too few near ties to find theirs."""
    for run in {key.partition(".")[2] for key in bounds}:
        of_run = [b for key, b in bounds.items() if key.partition(".")[2] == run]
        gap = max(b["decided_gap"] for b in of_run)
        for b in of_run:
            b["decided_gap"] = gap


def make(folder, checkpoint_folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    golden, loaded = GOLDENS[name], checkpoint.Checkpoint(checkpoint_folder)
    tensors, bounds = {}, {kind: {} for kind in NOISE}
    for n in golden.contexts:
        tokens = dialogue_ids(n, checkpoint_folder) if golden.is_dialogue else token_ids(n, loaded.config.vocab_size)
        context_tensors, context_bounds = make_context(golden, loaded, tokens)
        tensors |= context_tensors
        for kind, of_kind in context_bounds.items():
            bounds[kind] |= of_kind
    for of_kind in bounds.values():
        _share_gaps(of_kind)
    safetensors_io.write(folder / f"{name}.safetensors", tensors)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else {"models": {}}
    manifest["numpy"] = np.__version__
    manifest["models"][name] = {"checkpoint_sha256": loaded.sha256()} | bounds
    make_goldens.write_manifest(folder, manifest)
