"""Ops against the specification's constants, brute force, and properties of the mathematics."""

import itertools
import math

import numpy as np
import pytest

from tools.reference import dtypes, ops, records

RANDOM = np.random.default_rng(7)


def test_yarn_of_the_real_model_blends_pairs_10_to_23():
    assert ops.yarn_range(64, 10000, 4096) == (10, 23)
    exact = {0: 1, 1: 0.7498942093, 10: 0.05623413252, 11: 0.03900692657, 12: 0.02687936011, 16: 0.0055}
    exact |= {20: 7.905694150e-4, 22: 1.778279410e-4, 23: 3.333803580e-5, 24: 2.5e-5, 31: 3.333803580e-6}
    f = ops.rope_frequencies()
    for pair, value in exact.items():
        assert f[pair] == pytest.approx(value, rel=2e-7)


def test_yarn_of_a_short_original_context_is_clamped_at_pair_0():
    assert ops.yarn_range(64, 10000, 64) == (0, 9)


def test_softmax_scale_holds_the_squared_mscale():
    assert ops.softmax_scale(192) == pytest.approx(0.1352337789, rel=1e-9)
    assert ops.softmax_scale(192, factor=1) == pytest.approx(0.0721687836, rel=1e-8)


@pytest.mark.parametrize("rotate", [ops.rope_interleaved, ops.rope_half_split])
def test_rotated_dot_products_depend_on_the_distance_alone(rotate):
    f = ops.rope_frequencies()
    q, k = RANDOM.normal(size=(2, 1, 64))

    def score(t, s):
        return rotate(q, *ops.rope_table([t], f), ops.identity) @ rotate(k, *ops.rope_table([s], f), ops.identity).T

    assert score(5, 3) == pytest.approx(score(105, 103), abs=1e-4)
    assert score(5, 3) != pytest.approx(score(5, 2), abs=1e-2)


def test_the_two_rope_layouts_are_one_rotation_of_permuted_pairs():
    x = RANDOM.normal(size=(4, 2, 64))
    table = ops.rope_table([0, 1, 9, 500], ops.rope_frequencies())
    interleaved = ops.rope_interleaved(x, *table, ops.identity)
    split = ops.rope_half_split(np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1), *table, ops.identity)
    np.testing.assert_array_equal(np.concatenate([interleaved[..., 0::2], interleaved[..., 1::2]], axis=-1), split)


def test_interleaved_rope_turns_neighbours():
    x = np.zeros((1, 64))
    x[0, 2] = 1  # first of pair 1
    y = ops.rope_interleaved(x, *ops.rope_table([1], ops.rope_frequencies()), ops.identity)
    assert y[0, 2] == pytest.approx(math.cos(0.7498942093)) and y[0, 3] == pytest.approx(math.sin(0.7498942093))


def test_hadamard_is_its_own_inverse_and_keeps_dot_products():
    a, b = RANDOM.normal(size=(2, 3, 128))
    np.testing.assert_allclose(ops.hadamard(ops.hadamard(a)), a, atol=1e-13)
    np.testing.assert_allclose(np.sum(ops.hadamard(a) * ops.hadamard(b), -1), np.sum(a * b, -1), atol=1e-12)
    assert ops.hadamard(np.eye(128)[:1])[0] == pytest.approx(np.full(128, 128**-0.5))


def test_rms_norm_reads_the_unrounded_sum():
    x, r = np.array([[1.0, 1.0]]), np.array([[2.0**-9, 0.0]])
    y, new_r = ops.add_rms_norm(x, r, np.ones(2), ops.identity)
    assert y[0, 0] > y[0, 1]
    assert np.all(ops.add_rms_norm(x, r, np.ones(2))[1] == 1.0)
    assert np.mean(y**2) == pytest.approx(1, abs=2e-6)
    assert new_r[0, 0] == 1 + 2.0**-9


def test_layer_norm_has_no_mean_and_biased_unit_variance():
    y = ops.layer_norm(RANDOM.normal(5, 3, (4, 128)), np.ones(128), np.zeros(128), ops.identity)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-14)
    np.testing.assert_allclose(y.var(-1), 1, atol=1e-6)


def brute_force_router(logits, bias, top_k, n_group, topk_group, norm_topk_prob, factor):
    """One token, by enumeration: the best set of groups, then the best experts in them, one at a time."""
    p = [1 / (1 + math.exp(-g)) for g in logits]
    b = [float(np.float32(s + (0 if bias is None else bias[e]))) for e, s in enumerate(p)]
    size = len(b) // n_group
    if n_group == 1:
        allowed = range(len(b))
    else:
        def group_score(j):
            best = sorted(b[j * size : (j + 1) * size])[::-1]
            return best[0] if bias is None else best[0] + best[1]

        groups = max(
            itertools.combinations(range(n_group), topk_group),
            key=lambda g: (sum(map(group_score, g)), [-j for j in g]),
        )
        allowed = [e for j in groups for e in range(j * size, (j + 1) * size)]
    chosen = []
    for _ in range(top_k):
        chosen.append(max((e for e in allowed if e not in chosen), key=lambda e: (b[e], -e)))
    chosen.sort()
    total = sum(p[e] for e in chosen) if norm_topk_prob else 1
    return chosen, [p[e] / total * factor for e in chosen]


@pytest.mark.parametrize(
    ("experts", "top_k", "n_group", "topk_group", "norm", "has_bias"),
    [(16, 4, 4, 2, True, True), (32, 8, 8, 4, True, True), (16, 4, 1, 1, True, True), (16, 3, 4, 2, False, False)],
)
def test_router_equals_enumeration(experts, top_k, n_group, topk_group, norm, has_bias):
    logits = RANDOM.normal(0, 2, (100, experts))
    logits[:20] = np.round(logits[:20])  # ties
    bias = np.round(RANDOM.uniform(-1, 0.2, experts), 1) if has_bias else None
    ids, weights, margin = ops.moe_router(logits, bias, top_k, n_group, topk_group, norm, 2.5)
    compared = 0
    for t in range(len(logits)):
        expected_ids, expected_weights = brute_force_router(logits[t], bias, top_k, n_group, topk_group, norm, 2.5)
        if 0 < margin[t] < 1e-12:
            continue  # sums of group scores round differently in the enumeration
        compared += 1
        assert ids[t].tolist() == expected_ids
        np.testing.assert_allclose(weights[t], expected_weights, rtol=1e-12)
    assert compared > 90


def test_router_breaks_full_ties_by_the_lower_id():
    ids, weights, margin = ops.moe_router(np.zeros((1, 16)), np.zeros(16), 4, 4, 2, True, 2.5)
    assert ids.tolist() == [[0, 1, 2, 3]] and margin == 0
    np.testing.assert_allclose(weights, 2.5 / 4)


def test_negative_scores_of_kept_groups_win_over_masked_groups():
    logits = np.concatenate([np.full(8, 3.0), np.full(8, -3.0)])[None]
    ids, _, _ = ops.moe_router(logits, np.full(16, -2.0), 6, 2, 1, True, 1.0)
    assert ids.max() < 8


def test_top_k_is_ascending_stable_and_bounded():
    logits = np.array([[0.0, 5.0, -0.0, 5.0, 1.0, np.nan, -np.inf, 9.0]])
    assert ops.top_k(logits, [7], 3).tolist() == [[1, 3, 4]]  # position 7 is beyond the row
    assert ops.top_k(logits, [7], 4).tolist() == [[0, 1, 3, 4]]  # -0.0 and 0.0 are equal: the lower position
    assert ops.top_k(logits, [7], 6).tolist() == [[0, 1, 2, 3, 4, 5]]  # NaN is -inf, again the lower position
    assert ops.top_k(logits, [2], 4).tolist() == [[0, 1, -1, -1]]


def test_top_k_equals_python_sorting():
    logits = np.round(RANDOM.normal(0, 2, (50, 40)), 0)
    for t, row in enumerate(ops.top_k(logits, [40] * 50, 10)):
        assert row.tolist() == sorted(sorted(range(40), key=lambda s: (-logits[t, s], s))[:10])


def test_top_k_margin_is_the_gap_at_the_cut():
    logits = np.array([[4.0, 1.0, 3.0, -8.0], [0.0, 0.0, 0.0, 0.0]])
    assert ops.top_k_margin(logits, [4, 4], 2).tolist() == [(3 - 1) / 8, 0.0]
    assert np.isinf(ops.top_k_margin(logits, [2, 2], 2)).all()


def test_masked_attention_equals_softmax_over_the_list():
    q, k, v = RANDOM.normal(size=(3, 2, 8)), RANDOM.normal(size=(9, 1, 8)), RANDOM.normal(size=(9, 1, 4))
    allowed = RANDOM.random((3, 9)) < 0.5
    allowed[:, 0] = True
    o = ops.masked_attention(q, k, v, allowed, 0.3)
    for t, h in itertools.product(range(3), range(2)):
        positions = np.flatnonzero(allowed[t])
        weights = [math.exp(0.3 * float(q[t, h] @ k[s, 0])) for s in positions]
        expected = sum(w * v[s, 0] for w, s in zip(weights, positions)) / sum(weights)
        np.testing.assert_allclose(o[t, h], expected, rtol=1e-12)


def test_index_logits_equal_the_written_sum():
    q, w, k = RANDOM.normal(size=(2, 3, 8)), RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(5, 8))
    k_scale = RANDOM.uniform(1, 2, 5)
    logits = ops.index_logits(q, w, k, k_scale)
    for t, s in itertools.product(range(2), range(5)):
        expected = k_scale[s] * sum(max(0.0, float(q[t, h] @ k[s])) * w[t, h] for h in range(3))
        assert logits[t, s] == pytest.approx(expected, rel=1e-12)


def test_latent_records_lie_as_flashmla_reads_them():
    c = dtypes.round_bf16(RANDOM.normal(size=(3, 512)))
    k_rope = dtypes.round_bf16(RANDOM.normal(size=(3, 64)))
    record = records.latent_records(c, k_rope)
    assert record.shape == (3, 656)
    q, scale = dtypes.quantise(c)
    assert record[1, 200] == dtypes.e4m3_to_bits(q[1, 200])
    assert record[1, 516:520].view(np.float32) == scale[1, 1]
    assert record[2, 528 + 2 * 9 : 530 + 2 * 9].view(np.uint16) == dtypes.bf16_to_bits(k_rope[2, 9])
    back, rope = records.read_latent_records(record)
    np.testing.assert_array_equal(back, dtypes.dequantise(q, scale))
    np.testing.assert_array_equal(rope, k_rope)
    assert np.array_equal(back, dtypes.round_bf16(back)), "an E4M3 value times a power of two is a BF16 value"


def test_bf16_latent_records_are_the_latent_and_then_the_rotary_key():
    c = dtypes.round_bf16(RANDOM.normal(size=(3, 512)))
    k_rope = dtypes.round_bf16(RANDOM.normal(size=(3, 64)))
    record = records.latent_records_bf16(c, k_rope)
    assert record.shape == (3, 1152)
    assert record[1, 2 * 200 : 2 * 201].view(np.uint16) == dtypes.bf16_to_bits(c[1, 200])
    assert record[2, 1024 + 2 * 9 : 1024 + 2 * 10].view(np.uint16) == dtypes.bf16_to_bits(k_rope[2, 9])
    back, rope = records.read_latent_records_bf16(record)
    np.testing.assert_array_equal(back, c)
    np.testing.assert_array_equal(rope, k_rope)


def test_index_pages_hold_all_keys_before_all_scales():
    k = dtypes.round_bf16(RANDOM.normal(size=(10, 128)))
    page = records.index_page(k)
    q, scale = dtypes.quantise(k)
    assert page[128 * 9 + 5] == dtypes.e4m3_to_bits(q[9, 5])
    assert page[64 * 128 + 4 * 9 : 64 * 128 + 4 * 10].view(np.float32) == scale[9, 0]
    assert not page[128 * 10 : 64 * 128].any() and not page[64 * 128 + 40 :].any()


def test_swiglu_of_extremes():
    y = ops.swiglu(np.array([100.0, 0.0, 1.0]), np.array([2.0, 5.0, 3.0]), ops.identity)
    np.testing.assert_allclose(y, [200, 0, 3 / (1 + math.exp(-1))])
