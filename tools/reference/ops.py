"""One function per op, float64 in and out. `bf16` arguments are the rounding to apply: round_bf16, or identity.

Shapes: T rows, H heads, K inputs, N outputs, E experts. Every op is a plain transcription of the formula it names.
"""

import numpy as np

from tools.reference.dtypes import round_bf16

EPSILON = 1e-6


def identity(x):
    return x


def rms_norm(x, w, bf16=round_bf16):
    """[T,N]. The weight multiplies before the single rounding."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    return bf16(w * (x / np.sqrt(mean_square + EPSILON)))


def add_rms_norm(x, residual, w, bf16=round_bf16):
    """-> (normed, new residual). The norm reads the FP32 sum, before it is rounded to BF16."""
    z = x + residual
    if bf16 is not identity:
        z = z.astype(np.float32).astype(np.float64)
    return rms_norm(z, w, bf16), bf16(z)


def layer_norm(x, w, b, bf16=round_bf16):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return bf16((x - mean) / np.sqrt(variance + EPSILON) * w + b)


# ---- Rotary embedding


def yarn_range(dim, theta, original_max, beta_fast=32, beta_slow=1):
    """(low, high): rotary pairs below low keep their frequency, pairs above high are slowed by the whole factor."""

    def pair_of(rotations):
        return dim * np.log(original_max / (2 * np.pi * rotations)) / (2 * np.log(theta))

    return max(int(np.floor(pair_of(beta_fast))), 0), min(int(np.ceil(pair_of(beta_slow))), dim - 1)


def rope_frequencies(dim=64, theta=10000.0, factor=40.0, original_max=4096, beta_fast=32, beta_slow=1):
    """FP32 [dim/2]."""
    low, high = yarn_range(dim, theta, original_max, beta_fast, beta_slow)
    pairs = np.arange(dim // 2)
    plain = theta ** (-2.0 * pairs / dim)
    ramp = np.clip((pairs - low) / ((high if high != low else high + 0.001) - low), 0, 1)
    return (plain * (1 - ramp) + plain / factor * ramp).astype(np.float32)


def rope_table(positions, frequencies):
    """(cos, sin) [P, dim/2]. The angle is an FP32 product; its cosine is taken exactly."""
    angle = np.asarray(positions, np.float32)[:, None] * frequencies[None, :]
    return np.cos(angle.astype(np.float64)), np.sin(angle.astype(np.float64))


def softmax_scale(qk_head_dim, factor=40.0, mscale_all_dim=1.0):
    m = 0.1 * mscale_all_dim * np.log(factor) + 1 if factor > 1 else 1.0
    return qk_head_dim**-0.5 * m * m


def rope_interleaved(x, cos, sin, bf16=round_bf16):
    """x [T,...,64], cos and sin [T,32]: pairs are (x[2i], x[2i+1])."""
    cos, sin = (a.reshape(a.shape[0], *[1] * (x.ndim - 2), a.shape[1]) for a in (cos, sin))
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    y[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return bf16(y)


def rope_half_split(x, cos, sin, bf16=round_bf16):
    """x [T,...,64], cos and sin [T,32]: pairs are (x[i], x[i+32])."""
    cos, sin = (a.reshape(a.shape[0], *[1] * (x.ndim - 2), a.shape[1]) for a in (cos, sin))
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return bf16(np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1))


def hadamard(x):
    """y[i] = n^-0.5 * sum_j (-1)^popcount(i & j) x[j] along the last axis, as a matrix: no butterfly to get wrong."""
    n = x.shape[-1]
    i = np.arange(n)
    sign = np.array([[(-1.0) ** int(a & b).bit_count() for b in i] for a in i])
    return x @ sign.T * n**-0.5


# ---- Indexer, attention


def index_logits(q, w, k, k_scale):
    """q [T,H,D], w [T,H] with every constant folded in, k [S,D], k_scale [S] -> [T,S], without the causal bound."""
    heads = np.maximum(np.einsum("thd,sd->ths", q, k, optimize=True), 0.0)
    return np.einsum("ths,th->ts", heads, w, optimize=True) * k_scale[None, :]


def top_k(logits, num_keys, k):
    """Ascending positions [T,k], -1 at the tail: the k largest of logits[t, :num_keys[t]].

    Equal logits (0.0 and -0.0 are equal) go to the lower position; NaN ranks as -inf.
    """
    indices = np.full((logits.shape[0], k), -1, np.int32)
    for t, n in enumerate(num_keys):
        row = np.where(np.isnan(logits[t, :n]), -np.inf, logits[t, :n]) + 0.0
        chosen = np.sort(np.argsort(-row, kind="stable")[:k])
        indices[t, : len(chosen)] = chosen
    return indices


def top_k_margin(logits, num_keys, k):
    """Gap between the last chosen and the best rejected logit over max abs logit of the row; +inf where all fit."""
    margins = np.full(len(num_keys), np.inf)
    for t, n in enumerate(num_keys):
        if n > k:
            row = np.sort(logits[t, :n])[::-1]
            gap = row[k - 1] - row[k]
            margins[t] = gap / np.abs(row).max() if gap > 0 else 0.0
    return margins


def masked_attention(q, k, v, allowed, scale):
    """q [T,H,K], k [S,H or 1,K], v [S,H or 1,V], allowed [T,S] -> [T,H,V]. The dense definition of sparse attention."""
    heads = q.shape[1]
    out = np.empty((q.shape[0], heads, v.shape[-1]))
    for h in range(heads):
        score = q[:, h] @ k[:, h % k.shape[1]].T * scale
        score = np.where(allowed, score, -np.inf)
        p = np.exp(score - score.max(axis=1, keepdims=True))
        out[:, h] = (p / p.sum(axis=1, keepdims=True)) @ v[:, h % v.shape[1]]
    return out


# ---- Feed-forward


def swiglu(gate, up, bf16=round_bf16):
    return bf16(gate / (1 + np.exp(-gate)) * up)


def moe_router(logits, bias, top_k, n_group, topk_group, norm_topk_prob, routed_scaling_factor):
    """logits FP32 [T,E], bias [E] or None -> (ids [T,top_k] ascending, weights [T,top_k], margin [T]).

    Groups and experts are chosen by biased FP32 scores, weighted by unbiased ones; ties go to the lower id.
    margin is the smallest gap of scores that the row's choice rests on.
    """
    tokens, experts = logits.shape
    p = 1 / (1 + np.exp(-logits))
    b = (p if bias is None else p + bias).astype(np.float32).astype(np.float64)
    margin = np.full(tokens, np.inf)
    if n_group > 1:
        grouped = np.sort(b.reshape(tokens, n_group, -1), axis=-1)
        group_score = grouped[..., -1] if bias is None else grouped[..., -1] + grouped[..., -2]
        order = np.argsort(-group_score, axis=-1, kind="stable")
        kept = np.zeros((tokens, n_group), bool)
        np.put_along_axis(kept, order[:, :topk_group], True, axis=-1)
        if topk_group < n_group:
            ranked = np.take_along_axis(group_score, order, axis=-1)
            margin = ranked[:, topk_group - 1] - ranked[:, topk_group]
        b = np.where(np.repeat(kept, experts // n_group, axis=-1), b, -np.inf)
    order = np.argsort(-b, axis=-1, kind="stable")
    if top_k < experts:
        ranked = np.take_along_axis(b, order, axis=-1)
        margin = np.minimum(margin, ranked[:, top_k - 1] - ranked[:, top_k])
    ids = np.sort(order[:, :top_k], axis=-1)
    weights = np.take_along_axis(p, ids, axis=-1)
    if norm_topk_prob:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
    return ids.astype(np.int32), weights * routed_scaling_factor, margin


def moe_combine(expert_out, weights, shared, bf16=round_bf16):
    """expert_out [T,k,N], weights [T,k], shared [T,N]: one rounding of the whole sum."""
    return bf16(np.einsum("tkn,tk->tn", expert_out, weights) + shared)
