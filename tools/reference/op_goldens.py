"""Golden cases of single ops: seeded inputs, outputs of the reference, and how closely an implementation must agree.

Each function returns an Op. Cases mix plain random rows with the rows that break implementations: zeros, saturation,
ties, ragged blocks, partial pages.
"""

from dataclasses import dataclass

import numpy as np

from tools.reference import dtypes, ops, records
from tools.reference import sampling as draws
from tools.reference.safetensors_io import bf16, e4m3, f32, i32, u8

ONE_ROUNDING = "FP32 sums in any order move the value by far less than half a BF16 step: at most the next code"
EXACT = "exact arithmetic or a format definition: nothing may differ"


@dataclass(frozen=True)
class Op:
    cases: dict  # case -> {tensor name: Tensor}
    outputs: dict  # tensor name -> tolerance
    parameters: dict  # case -> scalars


def exact():
    return {"metric": "exact", "why": EXACT}


def bf16_ulp(atol=0.0, why=ONE_ROUNDING):
    return {"metric": "bf16_ulp", "bound": 1, "atol": atol, "why": why}


def relative(bound, atol=0.0, why="FP32 arithmetic"):
    return {"metric": "rel", "bound": bound, "atol": atol, "why": why}


def max_abs(bound, why):
    return {"metric": "max_abs", "bound": bound, "why": why}


def distance(bound, why):
    return {"metric": "d", "bound": bound, "why": why}


def _bf16_normal(random, *shape, std=1.0):
    return dtypes.round_bf16(random.normal(0, std, shape))


def _fp8_weight(random, out, inner, scale_format="ue8m0"):
    """E4M3 values and block scales such that the products are about N(0, 1/inner)."""
    q = dtypes.round_e4m3(random.normal(0, 100, (out, inner)))
    scale = np.full((-(-out // 128), inner // 128), inner**-0.5 / 100)
    scale = (scale * random.uniform(0.5, 2, scale.shape)).astype(np.float32)
    return q, dtypes.power_of_two_at_least(scale).astype(np.float32) if scale_format == "ue8m0" else scale


def e4m3_codes(random):
    edge = np.array([0.0, -0.0, 448, 447.9, 464, 1e30, -464, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-6, 1e-30])
    halfway = (lambda v: (v[1:] + v[:-1]) / 2)(np.unique(dtypes.e4m3_table()[:127]))
    x = np.concatenate([edge, halfway, -halfway, random.normal(0, 1, 200), random.normal(0, 100, 200)])
    x = x.astype(np.float32).astype(np.float64)
    return Op(
        {
            "all": {"codes": u8(np.arange(256)), "values": f32(dtypes.e4m3_table())},
            "round": {"x": f32(x), "codes": e4m3(dtypes.round_e4m3(x)), "bf16": bf16(dtypes.round_bf16(x))},
        },
        {"values": exact(), "codes": exact(), "bf16": exact()},
        {},
    )


def _norm_rows(random, n):
    x = _bf16_normal(random, 6, n)
    x[1] = 0
    x[2] *= 2.0**-12  # epsilon matters
    x[3] *= 2.0**10
    x[4, 1:] = 0  # one outlier
    return x


def rmsnorm(random):
    cases = {}
    for n in (128, 256, 512):
        x, w = _norm_rows(random, n), dtypes.round_bf16(1 + 0.1 * random.normal(size=n))
        cases[f"n{n}"] = {"x": bf16(x), "w": bf16(w), "y": bf16(ops.rms_norm(x, w))}
    return Op(cases, {"y": bf16_ulp()}, {})


def add_rmsnorm(random):
    cases = {}
    for n in (128, 256):
        x, r = _norm_rows(random, n), _bf16_normal(random, 6, n, std=4)
        r[1] = 0
        w = dtypes.round_bf16(1 + 0.1 * random.normal(size=n))
        y, new_r = ops.add_rms_norm(x, r, w)
        cases[f"n{n}"] = {
            "x": bf16(x), "residual": bf16(r), "w": bf16(w), "y": bf16(y), "new_residual": bf16(new_r),
        }  # fmt: skip
    return Op(cases, {"y": bf16_ulp(), "new_residual": exact()}, {})


def layernorm(random):
    x = _norm_rows(random, 128) + 0.0
    x[5] = dtypes.round_bf16(100 + x[5])  # the mean dominates: a one-pass variance loses it
    w, b = (f32(v).values() for v in (1 + 0.1 * random.normal(size=128), 0.1 * random.normal(size=128)))
    y = ops.layer_norm(x, w, b)
    cases = {"n128": {"x": bf16(x), "w": f32(w), "b": f32(b), "y": bf16(y)}}
    return Op(cases, {"y": bf16_ulp(atol=1e-5, why="w * normed + b cancels near zero; " + ONE_ROUNDING)}, {})


POSITIONS = [0, 1, 2, 63, 64, 1000, 4095, 4096, 4097, 65535, 131071, 163839]


def rope_table(random):
    cases, parameters = {}, {}
    for case, original in (("dsv32", 4096), ("yarn64", 64)):
        f = ops.rope_frequencies(original_max=original)
        cos, sin = ops.rope_table(POSITIONS, f)
        cases[case] = {
            "positions": i32(POSITIONS), "inv_freq": f32(f), "cos": f32(cos), "sin": f32(sin),
            "softmax_scale": f32([ops.softmax_scale(192)]),
        }  # fmt: skip
        parameters[case] = {"original_max_position_embeddings": original, "factor": 40.0, "theta": 10000.0}
    far = "an angle is an FP32 product of up to 163839: one step of inv_freq moves it by its own size times 2^-23"
    return Op(
        cases,
        {
            "inv_freq": relative(3e-7, why="a power and a blend in FP32 or better"),
            "cos": relative(0, 2.5e-2, far + "; positions up to 4097 agree to 1e-3"),
            "sin": relative(0, 2.5e-2, far + "; positions up to 4097 agree to 1e-3"),
            "softmax_scale": relative(3e-7),
        },
        parameters,
    )


def rope(random):
    positions = [0, 1, 5, 64, 777, 4096]
    cos, sin = ops.rope_table(positions, ops.rope_frequencies())
    cases = {}
    for case, rotate in (("interleaved", ops.rope_interleaved), ("half_split", ops.rope_half_split)):
        x = _bf16_normal(random, len(positions), 3, 64)
        cases[case] = {"x": bf16(x), "positions": i32(positions), "y": bf16(rotate(x, cos, sin))}
    why = "the difference of two products cancels near zero; " + ONE_ROUNDING
    return Op(cases, {"y": bf16_ulp(atol=2e-3, why=why + "; angles up to 4096 rad carry FP32's 2.4e-4")}, {})


def hadamard(random):
    integers = random.integers(-8, 9, (4, 128)).astype(np.float64)
    integers[0] = 0
    integers[1] = np.eye(128)[5]
    outlier = _bf16_normal(random, 6, 128)
    outlier[:, 7] *= 64
    outlier = dtypes.round_bf16(outlier)
    cases = {}
    for case, x in (("integers", integers), ("outliers", outlier)):
        # The factor is an FP32 constant: with exact sums the product is one FP32 rounding.
        y32 = ops.hadamard(x)
        if case == "integers":
            y32 = (np.rint(y32 * 128**0.5).astype(np.float32) * np.float32(128**-0.5)).astype(np.float64)
        cases[case] = {"x": bf16(x), "y_f32": f32(y32), "y": bf16(dtypes.round_bf16(y32))}
    return Op(
        cases,
        {"y_f32": relative(1e-6, 2e-5, "seven FP32 additions of values up to 200; exact in case integers"),
         "y": bf16_ulp(atol=2e-5, why=ONE_ROUNDING + "; sums cancel near zero")},
        {},
    )  # fmt: skip


def quant128(random):
    x = _bf16_normal(random, 12, 256)
    x[0] = 0
    x[1] = 2.0**-20  # below the floor of amax
    x[2, :128] = np.clip(x[2, :128], -1, 1)
    x[2, 0] = 1.75  # amax / 448 = 2^-8: representable, the scale must not go up
    x[3, 0] = -448
    x[4, 0] = dtypes.round_bf16(450.0)  # just beyond a power of two: the scale must go up
    x[5] *= 2.0**20
    x[6] *= 2.0**-9
    x[7, ::2] = -0.0
    x[8, :128] = np.linspace(-448, 448, 128).astype(np.float32)
    x = dtypes.round_bf16(x)
    cases, parameters = {}, {}
    for case, scale_format in (("ue8m0", "ue8m0"), ("f32", "float32")):
        q, s = dtypes.quantise(x, scale_format)
        cases[case] = {"x": bf16(x), "q": e4m3(q), "scale": f32(s)}
        parameters[case] = {"scale_format": scale_format}
    return Op(cases, {"q": exact(), "scale": exact()}, parameters)


def fp8_linear(random):
    cases, parameters = {}, {}
    shapes = (("square", 7, 256, 256, "ue8m0"), ("ragged576", 5, 576, 256, "ue8m0"), ("f32_scale", 5, 128, 384, "float32"))
    for case, tokens, out, inner, scale_format in shapes:
        x = _bf16_normal(random, tokens, inner)
        x[0] = 0
        x[1] *= 2.0**7
        w, scale = _fp8_weight(random, out, inner, scale_format)
        y = dtypes.dequantise(*dtypes.quantise(x, scale_format)) @ dtypes.dequantise_blocks(w, scale).T
        cases[case] = {
            "x": bf16(x), "w": e4m3(w), "w_scale": f32(scale), "y_f32": f32(y), "y": bf16(dtypes.round_bf16(y)),
        }  # fmt: skip
        parameters[case] = {"scale_format": scale_format}
    return Op(
        cases,
        {"y_f32": distance(1e-10, "sums in FP32 of exact products; the specification allows 1e-5"),
         "y": bf16_ulp(atol=1e-3, why=ONE_ROUNDING + "; sums cancel near zero (rows reach 500)")},
        parameters,
    )  # fmt: skip


def bf16_linear(random):
    x, w = _bf16_normal(random, 6, 256), _bf16_normal(random, 192, 256, std=1 / 16)
    x[0] = 0
    y = x @ w.T
    cases = {"plain": {"x": bf16(x), "w": bf16(w), "y_f32": f32(y), "y": bf16(dtypes.round_bf16(y))}}
    return Op(
        cases,
        {"y_f32": relative(1e-6, 5e-6, "FP32 sums of 256 exact products"),
         "y": bf16_ulp(atol=5e-6, why=ONE_ROUNDING + "; sums cancel near zero")},
        {},
    )  # fmt: skip


def mla_absorb(random):
    heads, tokens = 2, 4
    w, scale = _fp8_weight(random, heads * 256, 512)
    kv_b = dtypes.round_bf16(dtypes.dequantise_blocks(w, scale))
    per_head = kv_b.reshape(heads, 256, 512)
    q, o = _bf16_normal(random, tokens, heads, 128), _bf16_normal(random, tokens, heads, 512, std=0.3)
    q_absorbed = dtypes.round_bf16(np.einsum("thd,hdc->thc", q, per_head[:, :128]))
    out = dtypes.round_bf16(np.einsum("thc,hdc->thd", o, per_head[:, 128:]))
    cases = {
        "two_heads": {
            "kv_b": e4m3(w), "kv_b_scale": f32(scale), "q_nope": bf16(q), "o_latent": bf16(o),
            "q_absorbed": bf16(q_absorbed), "o": bf16(out),
        }
    }  # fmt: skip
    why = ONE_ROUNDING + "; sums cancel near zero"
    return Op(cases, {"q_absorbed": bf16_ulp(5e-6, why), "o": bf16_ulp(5e-6, why)}, {})


def _latents(random, tokens):
    c, k_rope = _bf16_normal(random, tokens, 512), _bf16_normal(random, tokens, 64)
    c *= np.repeat(2.0 ** random.integers(-3, 4, (tokens, 4)), 128, axis=1)
    return c, k_rope


def latent_record(random):
    c, k_rope = _latents(random, 9)
    c[0], k_rope[0] = 0, 0
    c[1, 128:256] = 2.0**-20
    c[2, 5] = 448
    c[3, ::3] = -0.0
    record = records.latent_records(c, k_rope)
    back, _ = records.read_latent_records(record)
    cases = {"tokens": {"c": bf16(c), "k_rope": bf16(k_rope), "record": u8(record), "c_dequantised": bf16(back)}}
    return Op(cases, {"record": exact(), "c_dequantised": exact()}, {})


def latent_record_bf16(random):
    c, k_rope = _latents(random, 9)
    c[0], k_rope[0] = 0, 0
    c[3, ::3] = -0.0
    record = records.latent_records_bf16(c, k_rope)
    cases = {"tokens": {"c": bf16(c), "k_rope": bf16(k_rope), "record": u8(record)}}
    return Op(cases, {"record": exact()}, {})


def index_page(random):
    cases = {}
    for case, tokens in (("full", 64), ("partial", 5)):
        k = _bf16_normal(random, tokens, 128)
        k[0] = 0
        cases[case] = {"k": bf16(k), "page": u8(records.index_page(k))}
    return Op(cases, {"page": exact()}, {})


def index_weights(random):
    tokens, heads, inner = 5, 8, 256
    a, weights_proj = _bf16_normal(random, tokens, inner), _bf16_normal(random, heads, inner, std=1 / 16)
    q_scale = 2.0 ** random.integers(-9, -3, (tokens, heads))
    w = (a @ weights_proj.T) * heads**-0.5 * q_scale * 128**-0.5
    cases = {"plain": {"a": bf16(a), "weights_proj": bf16(weights_proj), "q_scale": f32(q_scale), "w": f32(w)}}
    return Op(cases, {"w": max_abs(1e-6, "an FP32 sum of 256 exact products and three factors")}, {})


def index_logits(random):
    cases = {}
    shapes = (("heads8", 6, 8, [3, 1], [1, 2, 63, 64, 65, 100]), ("heads64", 2, 64, [0, 2], [70, 128]))
    for case, tokens, heads, page_table, num_keys in shapes:
        q, _ = dtypes.quantise(_bf16_normal(random, tokens, heads, 128))
        w = f32(random.normal(0, 1e-3, (tokens, heads))).values()
        w[-1] = np.abs(w[-1])
        pool = random.integers(0, 256, (4, records.INDEX_PAGE_BYTES), dtype=np.uint8)  # other pages hold garbage
        keys = _bf16_normal(random, 64 * len(page_table), 128) * 2.0 ** random.integers(-2, 3, (64 * len(page_table), 1))
        for i, page in enumerate(page_table):
            pool[page] = records.index_page(keys[64 * i : 64 * (i + 1)])
        k8, k_scale = (np.concatenate(v) for v in zip(*(records.read_index_page(pool[p]) for p in page_table)))
        logits = ops.index_logits(q, w, k8, k_scale.astype(np.float64))
        allowed = np.arange(logits.shape[1])[None] < np.array(num_keys)[:, None]
        cases[case] = {
            "q": e4m3(q), "w": f32(w), "pages": u8(pool), "page_table": i32(page_table), "num_keys": i32(num_keys),
            "logits": f32(np.where(allowed, logits, -np.inf)),
        }  # fmt: skip
    return Op(
        cases,
        {"logits": max_abs(2e-6, "FP32 sums over 128 dims (exact products) and up to 64 heads; -inf must match")},
        {},
    )


def topk(random):
    n = 100
    cases, parameters = {}, {}
    for case, k in (("k16", 16), ("k64", 64)):
        x = random.normal(0, 1, (9, n))
        num_keys = np.array([1, k - 1, k, k + 1, n, n, n, n, n])
        x[4] = np.maximum(x[4], 0)  # many zeros at the boundary
        x[5] = np.where(random.random(n) < 0.5, 0.0, -0.0)  # all equal
        x[6] = np.round(x[6])  # ties everywhere
        x[7, random.permutation(n)[: n - k // 2]] = -np.inf  # fewer finite logits than k
        x[8, ::3] = np.nan
        x[8, 1] = np.inf
        x = x.astype(np.float32).astype(np.float64)
        cases[case] = {"logits": f32(x), "num_keys": i32(num_keys), "indices": i32(ops.top_k(x, num_keys, k))}
        parameters[case] = {"k": k}
    return Op(cases, {"indices": exact()}, parameters)


def sparse_attention(random):
    return _sparse_attention(random, records.latent_records, records.read_latent_records)


def sparse_attention_bf16(random):
    return _sparse_attention(random, records.latent_records_bf16, records.read_latent_records_bf16)


def _sparse_attention(random, write, read):
    heads, k, page_table = 4, 16, [2, 0]
    c, k_rope = _latents(random, 128)
    c *= 0.2
    k_rope *= 0.5
    record = write(dtypes.round_bf16(c), dtypes.round_bf16(k_rope))
    # The page outside the table holds garbage.
    pool = random.integers(0, 120, (3, 64, record.shape[1]), dtype=np.uint8)
    for i, page in enumerate(page_table):
        pool[page] = record[64 * i : 64 * (i + 1)]
    latent, rotary = read(record)
    key = np.concatenate([latent, rotary], axis=1)[:, None]
    scale = float(np.float32(ops.softmax_scale(192)))

    dense = [np.arange(n) for n in (1, 2, 16)]
    sparse = [np.sort(random.choice(128, size, replace=False)) for size in (16, 16, 7)]
    cases, parameters = {}, {}
    for case, q_std in (("smooth", 0.25), ("peaked", 4.0)):
        rows = dense + sparse
        query = _bf16_normal(random, len(rows), heads, 576, std=q_std)
        allowed = np.zeros((len(rows), 128), bool)
        indices = np.full((len(rows), k), -1)
        for t, row in enumerate(rows):
            allowed[t, row] = True
            indices[t, : len(row)] = row
        o = ops.masked_attention(query, key, latent[:, None], allowed, scale)
        cases[case] = {
            "q_absorbed": bf16(query[..., :512]), "q_rope": bf16(query[..., 512:]), "pages": u8(pool),
            "page_table": i32(page_table), "indices": i32(indices), "softmax_scale": f32([scale]),
            "o_f32": f32(o), "o_latent": bf16(dtypes.round_bf16(o)),
        }  # fmt: skip
        parameters[case] = {"k": k}
    return Op(
        cases,
        {"o_f32": max_abs(2e-5, "FP32 scores up to 100 carry 1e-5 into the exponent"),
         "o_latent": max_abs(8e-3, "the specification's bound; one BF16 step is 2^-8 of a value")},
        parameters,
    )  # fmt: skip


def swiglu(random):
    gate, up = _bf16_normal(random, 6, 128, std=3), _bf16_normal(random, 6, 128, std=3)
    gate[0], up[1] = 0, 0
    gate[2] = -100  # exp overflows FP32 where it is taken of -gate
    gate[3] = 100
    return Op({"plain": {"gate": bf16(gate), "up": bf16(up), "y": bf16(ops.swiglu(gate, up))}},
              {"y": bf16_ulp(atol=1e-30, why=ONE_ROUNDING + "; silu(-100) is 3.7e-42, a subnormal that may be flushed")}, {})  # fmt: skip


def moe_router(random):
    base = {"norm_topk_prob": True, "routed_scaling_factor": 2.5}
    tiny = {"top_k": 4, "n_group": 4, "topk_group": 2} | base
    configs = {
        "tiny": (16, tiny),
        "dsv32": (256, {"top_k": 8, "n_group": 8, "topk_group": 4} | base),
        "one_group": (16, {"top_k": 4, "n_group": 1, "topk_group": 1} | base),
        "not_normalised": (16, tiny | {"norm_topk_prob": False}),
        "no_bias": (16, tiny),
        "ties": (16, tiny),
        "negative_bias": (16, tiny),
    }
    cases = {}
    for case, (experts, parameters) in configs.items():
        x, gate = _bf16_normal(random, 12, 128), dtypes.round_bf16(2 * random.normal(0, 128**-0.5, (experts, 128)))
        bias = f32(random.uniform(-0.2, 0.2, experts)).values()
        if case == "ties":  # every score is sigmoid(0): groups, then experts, go by the lower id
            x[:4], bias = 0, np.zeros(experts)
            gate[5], gate[6] = gate[4], gate[4]
        if case == "negative_bias":  # kept scores below zero: masked groups must be -inf, not 0
            bias = bias - 2
        logits = f32(x @ gate.T).values()
        ids, weights, margin = ops.moe_router(logits, None if case == "no_bias" else bias, **parameters)
        cases[case] = {
            "x": bf16(x), "gate": bf16(gate), "logits": f32(logits), "ids": i32(ids), "weights": f32(weights),
            "margin": f32(margin),
        }  # fmt: skip
        if case != "no_bias":
            cases[case]["bias"] = f32(bias)
    return Op(
        cases,
        {"logits": relative(1e-6, 5e-6, "FP32 sums of 128 exact products"),
         "ids": {"metric": "set", "why": "rows whose margin is at least 1e-5, and rows of case ties whose margin is 0: equal"},
         "weights": relative(1e-5, why="the specification's bound")},
        {case: parameters for case, (_, parameters) in configs.items()},
    )  # fmt: skip


def moe_combine(random):
    tokens, k, n = 6, 4, 128
    expert_out, shared = _bf16_normal(random, tokens, k, n), _bf16_normal(random, tokens, n)
    weights = f32(random.dirichlet(np.ones(k), tokens) * 2.5).values()
    weights[0] = [2.5, 0, 0, 0]
    y = ops.moe_combine(expert_out, weights, shared, bf16=ops.identity)
    cases = {
        "plain": {
            "expert_out": bf16(expert_out), "weights": f32(weights), "shared": bf16(shared), "y_f32": f32(y),
            "y": bf16(dtypes.round_bf16(y)),
        }
    }  # fmt: skip
    return Op(cases, {"y_f32": relative(1e-6, 2e-6), "y": bf16_ulp(2e-6, ONE_ROUNDING + "; sums cancel near zero")}, {})


def _bits32(values):
    """Unsigned 32-bit words as I32 tensors of the same bits."""
    return i32(np.asarray(values, np.uint64).astype(np.uint32).view(np.int32))


def _low_high(values):
    return _bits32([[v & 0xFFFFFFFF, v >> 32] for v in values])


def sampling(random):
    seeds = [0, 1, 2**32, 2**64 - 1, 0x0123456789ABCDEF] + [int(v) for v in random.integers(0, 2**63, 11)]
    positions = [0, 1, 63, 64, 2**31, 2**32 + 5] + [int(v) for v in random.integers(0, 163840, 10)]
    choices = [0, 1, 7, 0] * 4
    tokens = [0, 1, 129279] + random.integers(0, 129280, 13).tolist()
    counters = random.integers(0, 2**32, (16, 4), dtype=np.uint64)
    noise = [float(draws.gumbel(*a)) for a in zip(seeds, choices, positions, np.array(tokens))]

    vocab, rows = 64, 48
    logits = f32(random.normal(0, 3, (rows, vocab))).values()
    logits[1, 40] = logits[1].max()  # a tie at temperature 0
    logits[2, ::2] = -np.inf
    logits[3, 5] = np.nan
    temperature = f32(random.choice([0.3, 0.7, 1.0, 1.5], rows)).values()
    temperature[:4] = [0, 0, 1, 0]
    top_k = random.choice([0, 0, 1, 5, 40], rows)
    top_p = f32(random.choice([1.0, 1.0, 0.2, 0.8, 0.95], rows)).values()
    row_seeds = [seeds[i % 16] for i in range(rows)]
    row_positions = [positions[(i * 5) % 16] for i in range(rows)]
    row_choices = [choices[i % 16] for i in range(rows)]
    drawn = [draws.sample(*a) for a in zip(logits, temperature, top_k, top_p, row_seeds, row_choices, row_positions)]
    for row, (t, k, p) in enumerate(zip(temperature, top_k, top_p)):
        if t > 0:
            assert draws.kept_set(np.nan_to_num(logits[row], nan=-np.inf), t, k, p)[2] > 1e-6, "top_p cuts at a tie"
    token, gap = zip(*drawn)
    logprob = [draws.logprobs(row)[t] for row, t in zip(logits, token)]
    cases = {
        "philox": {"seed": _low_high(seeds), "counter": _bits32(counters),
                   "words": _bits32([draws.philox4x32(s, c) for s, c in zip(seeds, counters)])},
        "noise": {"seed": _low_high(seeds), "choice": i32(choices), "position": _low_high(positions),
                  "token_id": i32(tokens), "value": f32(noise)},
        "draw": {"logits": f32(logits), "temperature": f32(temperature), "top_k": i32(top_k), "top_p": f32(top_p),
                 "seed": _low_high(row_seeds), "choice": i32(row_choices), "position": _low_high(row_positions),
                 "token": i32(token), "logprob": f32(logprob), "gap": f32(gap)},
        "adjusted": _adjusted_draws(random, row_seeds, row_choices, row_positions),
    }  # fmt: skip
    return Op(
        cases,
        {"words": exact(), "value": relative(2e-7, 1e-9, "two logarithms in double, stored as FP32"),
         "token": {"metric": "exact", "why": "rows with gap below 1e-6 and above 0 do not occur"},
         "top_token": exact(),
         "logprob": relative(1e-5, 2e-6, "a mass in fixed point and FP32 storage"),
         "top_logprob": relative(1e-5, 2e-6, "a mass in fixed point and FP32 storage")},
        {},
    )  # fmt: skip


def _adjusted_draws(random, seeds, choices, positions):
    """Rows with penalties, biases, masks, min_p and top log-probabilities. Lists are padded with -1."""
    vocab, rows, top = 64, len(seeds), 20
    logits = f32(random.normal(0, 2, (rows, vocab))).values()
    logits[0, 8:12] = logits[0, 8]  # equal ones among the likeliest
    logits[0, 8:12] += 10
    logits[1, 20:] = -np.inf  # fewer than asked for
    logits[2, 30] = np.nan
    prompt = random.integers(0, vocab, (rows, 12))
    generated = random.integers(0, vocab // 4, (rows, 10))  # some several times
    generated[np.arange(rows) % 3 == 0, 4:] = -1
    bias_token = np.stack([random.choice(vocab, 5, replace=False) for _ in range(rows)])
    bias = f32(random.choice([-100.0, -3.5, 0.5, 2.0, 6.0], (rows, 5))).values()
    bias_token[::4] = -1
    masked = np.where(np.arange(rows)[:, None] % 2 == 0, np.argsort(-logits, axis=1)[:, :2], -1)
    repetition = f32(random.choice([1.0, 1.0, 1.3, 0.8], rows)).values()
    frequency = f32(random.choice([0.0, 0.4, -0.7, 2.0], rows)).values()
    presence = f32(random.choice([0.0, 1.1, -0.3], rows)).values()
    temperature = f32(random.choice([0.0, 0.6, 1.0, 1.7], rows)).values()
    top_k = random.choice([0, 0, 30], rows)
    top_p = f32(random.choice([1.0, 1.0, 0.9], rows)).values()
    min_p = f32(random.choice([0.0, 0.02, 0.3, 1.0], rows)).values()
    token, logprob, gap, top_token, top_logprob = [], [], [], [], []
    for r in range(rows):
        known = [row[row >= 0].tolist() for row in (prompt[r], generated[r], masked[r])]
        pairs = [(t, b) for t, b in zip(bias_token[r], bias[r]) if t >= 0]
        z = draws.adjusted(logits[r], known[0], known[1], repetition[r], frequency[r], presence[r], pairs, known[2])
        if temperature[r] > 0:
            assert draws.kept_set(z, temperature[r], top_k[r], top_p[r], min_p[r])[2] > 1e-6, "a filter cuts at a tie"
        drawn = draws.sample(z, temperature[r], top_k[r], top_p[r], seeds[r], choices[r], positions[r], min_p[r])
        assert drawn[1] > 1e-6, "two tokens score alike"
        ids, values = draws.top_logprobs(logits[r], top)
        token.append(drawn[0])
        gap.append(drawn[1])
        logprob.append(draws.logprobs(logits[r])[drawn[0]])
        top_token.append(np.pad(ids, (0, top - len(ids)), constant_values=-1))
        top_logprob.append(np.pad(values, (0, top - len(values))))
    return {"logits": f32(logits), "prompt": i32(prompt), "generated": i32(generated), "bias_token": i32(bias_token),
            "bias": f32(bias), "masked": i32(masked), "repetition_penalty": f32(repetition),
            "frequency_penalty": f32(frequency), "presence_penalty": f32(presence), "temperature": f32(temperature),
            "top_k": i32(top_k), "top_p": f32(top_p), "min_p": f32(min_p), "seed": _low_high(seeds),
            "choice": i32(choices), "position": _low_high(positions), "token": i32(token), "logprob": f32(logprob),
            "gap": f32(gap), "top_token": i32(np.array(top_token)), "top_logprob": f32(np.array(top_logprob))}  # fmt: skip


OPS = {
    "e4m3": e4m3_codes,
    "rmsnorm": rmsnorm,
    "add_rmsnorm": add_rmsnorm,
    "layernorm": layernorm,
    "rope_table": rope_table,
    "rope": rope,
    "hadamard": hadamard,
    "quant128": quant128,
    "fp8_linear": fp8_linear,
    "bf16_linear": bf16_linear,
    "mla_absorb": mla_absorb,
    "latent_record": latent_record,
    "latent_record_bf16": latent_record_bf16,
    "index_page": index_page,
    "index_weights": index_weights,
    "index_logits": index_logits,
    "topk": topk,
    "sparse_attention": sparse_attention,
    "sparse_attention_bf16": sparse_attention_bf16,
    "swiglu": swiglu,
    "moe_router": moe_router,
    "moe_combine": moe_combine,
    "sampling": sampling,
}
