"""The committed goldens are what the reference makes, and plain FP32 arithmetic passes their tolerances."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tools.reference import dtypes, make_goldens, model_goldens, op_goldens, ops, safetensors_io

FOLDER = make_goldens.GOLDEN / "ops"
TRAINED = make_goldens.GOLDEN.parents[1] / "checkpoints" / "tandem-tiny"


def read(op):
    manifest = json.loads((FOLDER / "manifest.json").read_text())["ops"][op]
    tensors = safetensors_io.read(FOLDER / f"{op}.safetensors")
    cases = {}
    for name, tensor in tensors.items():
        case, field = name.split(".")
        cases.setdefault(case, {})[field] = tensor
    return manifest, cases


@pytest.mark.parametrize("op", op_goldens.OPS)
def test_committed_op_goldens_are_what_the_reference_makes(op, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "ops"
    if not folder.exists():
        make_goldens.make_ops(folder)
    made, committed = (safetensors_io.read(f / f"{op}.safetensors") for f in (folder, FOLDER))
    assert made.keys() == committed.keys()
    for name in made:
        assert made[name].dtype == committed[name].dtype
        a, b = made[name].values(), committed[name].values()
        # Another BLAS may round the last bit of a float64 sum otherwise.
        np.testing.assert_allclose(a, b, rtol=2**-7 if made[name].dtype == "BF16" else 1e-6, err_msg=name)
    assert json.loads((folder / "manifest.json").read_text())["ops"][op] == read(op)[0]


@pytest.mark.parametrize("op", op_goldens.OPS)
def test_readme_names_every_tensor(op):
    readme = (Path(__file__).parent / "README.md").read_text()
    (line,) = [row for row in readme.splitlines() if row.startswith(f"| `{op}`")]
    for fields in read(op)[1].values():
        for field in fields:
            assert re.search(rf"`(\w+\.)?{field}`", line), f"{op}: README.md does not name {field}"


def bf16_steps(a, b):
    """Distance in codes; the codes of both signs are put on one line."""
    lines = [np.where(bits & 0x8000, -(bits & 0x7FFF).astype(int), bits.astype(int)) for bits in (a, b)]
    return np.abs(lines[0] - lines[1])


def check(got, tensor, tolerance):
    """got: float values as an FP32 implementation gives them, before any rounding to BF16 of ours."""
    want = tensor.values()
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    got, want = np.float64(got[finite]), want[finite]
    metric, bound = tolerance["metric"], tolerance.get("bound")
    if metric == "exact":
        np.testing.assert_array_equal(got, want)
    elif metric == "bf16_ulp":
        close = bf16_steps(dtypes.bf16_to_bits(dtypes.round_bf16(got)), tensor.bits[finite]) <= bound
        assert np.all(close | (np.abs(got - want) <= tolerance["atol"]))
    elif metric == "rel":
        assert np.all(np.abs(got - want) <= bound * np.abs(want) + tolerance["atol"])
    elif metric == "max_abs":
        assert np.abs(got - want).max() <= bound * np.abs(want).max()
    elif metric == "d":
        assert 1 - 2 * np.sum(got * want) / np.sum(got * got + want * want) <= bound
    else:
        raise ValueError(metric)


def float32(t):
    return t.values().astype(np.float32)


def fp32_fp8_linear(t, scale_format):
    q, s = dtypes.quantise(t["x"].values(), scale_format)
    w, ws = float32(t["w"]), t["w_scale"].bits
    y = np.zeros((len(q), len(w)), np.float32)
    for kb in range(q.shape[1] // 128):
        block = slice(128 * kb, 128 * kb + 128)
        partial = q[:, block].astype(np.float32) @ w[:, block].T
        y += partial * (s[:, kb, None] * np.repeat(ws[:, kb], 128)[None, : len(w)])
    return y


def fp32_rms_norm(x, w):
    return w * (x * (np.float32(1) / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6))))


def fp32_layer_norm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, -1, keepdims=True) + np.float32(1e-6)) * w + b


def fp32_hadamard(x):
    y = x.copy()
    for stage in range(7):
        pairs = y.reshape(len(x), -1, 2, 1 << stage)
        y = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(x.shape)
    return y * np.float32(128**-0.5)


def fp32_rope(t, rotate):
    f = ops.rope_frequencies()
    angle = t["positions"].bits.astype(np.float32)[:, None] * f
    return rotate(float32(t["x"]), np.cos(angle), np.sin(angle), ops.identity)


def fp32_index_logits(t):
    pages = t["pages"].bits[t["page_table"].bits]
    keys = dtypes.e4m3_from_bits(pages[:, :8192]).reshape(-1, 128).astype(np.float32)
    scales = np.ascontiguousarray(pages[:, 8192:]).view("<f4").reshape(-1)
    dots = np.maximum(np.einsum("thd,sd->ths", float32(t["q"]), keys), np.float32(0))
    logits = np.einsum("ths,th->ts", dots, t["w"].bits) * scales
    return np.where(np.arange(len(scales)) < t["num_keys"].bits[:, None], logits, np.float32(-np.inf))


def fp32_attention(t):
    q = np.concatenate([float32(t["q_absorbed"]), float32(t["q_rope"])], axis=-1)
    pages = t["pages"].bits[t["page_table"].bits]
    record = pages.reshape(-1, pages.shape[-1])
    if record.shape[1] == 656:
        latent = dtypes.e4m3_from_bits(record[:, :512]).astype(np.float32)
        latent *= np.repeat(np.ascontiguousarray(record[:, 512:528]).view("<f4"), 128, axis=1)
    else:
        latent = dtypes.bf16_from_bits(np.ascontiguousarray(record[:, :1024]).view("<u2")).astype(np.float32)
    rope = dtypes.bf16_from_bits(np.ascontiguousarray(record[:, -128:]).view("<u2")).astype(np.float32)
    out = np.zeros((*q.shape[:2], 512), np.float32)
    for r, indices in enumerate(t["indices"].bits):
        kept = indices[indices >= 0]
        k = np.concatenate([latent[kept], rope[kept]], axis=1)
        score = q[r] @ k.T * t["softmax_scale"].bits
        p = np.exp(score - score.max(-1, keepdims=True))
        out[r] = (p @ latent[kept]) / p.sum(-1, keepdims=True)
    return out


def fp32_router_weights(t, parameters):
    p = np.float32(1) / (1 + np.exp(-t["logits"].bits))
    w = np.take_along_axis(p, t["ids"].bits, axis=1)
    if parameters["norm_topk_prob"]:
        w = w / w.sum(-1, keepdims=True)
    return w * np.float32(parameters["routed_scaling_factor"])


def fp32_absorb(t):
    w = dtypes.dequantise_blocks(t["kv_b"].values(), t["kv_b_scale"].bits).astype(np.float32)
    w = w.reshape(-1, 256, 512)
    return {
        "q_absorbed": np.einsum("thd,hdc->thc", float32(t["q_nope"]), w[:, :128]),
        "o": np.einsum("thc,hdc->thd", float32(t["o_latent"]), w[:, 128:]),
    }


def fp32_swiglu(t):
    gate, up = float32(t["gate"]), float32(t["up"])
    with np.errstate(over="ignore"):
        return gate / (np.float32(1) + np.exp(-gate)) * up


def both(value):
    return {"y_f32": value, "y": value}


# op -> what an FP32 implementation computes: (tensors of a case, parameters, case) -> {output: float32}
FP32 = {
    "rmsnorm": lambda t, p, c: {"y": fp32_rms_norm(float32(t["x"]), float32(t["w"]))},
    "add_rmsnorm": lambda t, p, c: {
        "y": fp32_rms_norm(float32(t["x"]) + float32(t["residual"]), float32(t["w"])),
        "new_residual": dtypes.round_bf16(np.float64(float32(t["x"]) + float32(t["residual"]))),
    },
    "layernorm": lambda t, p, c: {"y": fp32_layer_norm(float32(t["x"]), t["w"].bits, t["b"].bits)},
    "rope": lambda t, p, c: {"y": fp32_rope(t, getattr(ops, f"rope_{c}"))},
    "hadamard": lambda t, p, c: both(fp32_hadamard(float32(t["x"]))),
    "fp8_linear": lambda t, p, c: both(fp32_fp8_linear(t, p["scale_format"])),
    "bf16_linear": lambda t, p, c: both(float32(t["x"]) @ float32(t["w"]).T),
    "mla_absorb": lambda t, p, c: fp32_absorb(t),
    "index_weights": lambda t, p, c: {
        "w": float32(t["a"]) @ float32(t["weights_proj"]).T
        * np.float32(t["weights_proj"].bits.shape[0] ** -0.5) * t["q_scale"].bits * np.float32(128**-0.5)
    },  # fmt: skip
    "index_logits": lambda t, p, c: {"logits": fp32_index_logits(t)},
    "sparse_attention_bf16": lambda t, p, c: {"o_f32": fp32_attention(t), "o_latent": fp32_attention(t)},
    "sparse_attention": lambda t, p, c: {"o_f32": fp32_attention(t), "o_latent": fp32_attention(t)},
    "swiglu": lambda t, p, c: {"y": fp32_swiglu(t)},
    "moe_router": lambda t, p, c: {
        "logits": float32(t["x"]) @ float32(t["gate"]).T,
        "weights": fp32_router_weights(t, p),
    },
    "moe_combine": lambda t, p, c: both(
        np.einsum("tkn,tk->tn", float32(t["expert_out"]), t["weights"].bits) + float32(t["shared"])
    ),
}


@pytest.mark.parametrize("op", FP32)
def test_plain_fp32_arithmetic_passes_the_tolerances(op):
    manifest, cases = read(op)
    for case, tensors in cases.items():
        for name, value in FP32[op](tensors, manifest["cases"][case], case).items():
            check(value, tensors[name], manifest["outputs"][name])


@pytest.mark.parametrize("op", FP32)
def test_a_small_mistake_does_not_pass(op):
    manifest, cases = read(op)
    for case, tensors in cases.items():
        for name, value in FP32[op](tensors, manifest["cases"][case], case).items():
            wrong = np.array(value)
            wrong *= np.float32(1.02)
            with pytest.raises(AssertionError):
                check(wrong, tensors[name], manifest["outputs"][name])


@pytest.mark.parametrize("name", model_goldens.GOLDENS)
def test_model_goldens_are_complete_and_agree_with_themselves(name):
    folder = make_goldens.GOLDEN / "model"
    tensors = safetensors_io.read(folder / f"{name}.safetensors")
    bounds = json.loads((folder / "manifest.json").read_text())["models"][name]["bounds"]
    golden = model_goldens.GOLDENS[name]
    runs = ["whole"] if golden.has_whole else []
    if golden.has_layers:
        num_layers = {"v32-micro": 2, "tandem-tiny": 5}.get(golden.checkpoint, 4)
        runs += [f"alone{layer}" for layer in range(num_layers)]
    for n in golden.contexts:
        positions = tensors[f"c{n}.positions"].bits
        assert positions.tolist() == model_goldens.positions_of(n) and positions[-1] == n - 1
        tokens = tensors[f"c{n}.tokens"].bits
        if golden.is_dialogue:
            assert tokens.tolist() == model_goldens.dialogue_ids(n, TRAINED).tolist()
        else:
            vocab_size = 1024 if golden.checkpoint == "v32-micro" else 4096
            assert tokens.tolist() == model_goldens.token_ids(n, vocab_size).tolist()
        if golden.has_whole:
            assert tensors[f"c{n}.mtp.tokens"].bits.tolist() == [*tokens[1:], tensors[f"c{n}.whole.argmax"].bits[-1]]
        for run in runs:
            logits, argmax = tensors[f"c{n}.{run}.logits"].values(), tensors[f"c{n}.{run}.argmax"].bits[positions]
            assert np.all(np.isfinite(logits)) and logits.std() > 1
            stored = argmax < logits.shape[1]
            assert np.array_equal(logits[stored].argmax(1), argmax[stored])
            if golden.has_bounds:
                assert set(bounds[f"c{n}.{run}"]) == {"d", "median_row_d", "argmax_other", "decided_gap"}


def test_all_goldens_together_stay_small():
    files = [f for f in make_goldens.GOLDEN.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 10 * 2**20
    assert all(f.stat().st_size < 2**20 for f in (make_goldens.GOLDEN / "ops").iterdir())
