"""The model as a whole: properties that hold whatever the weights are, on a random v32-micro."""

import dataclasses

import numpy as np
import pytest

from tools.reference import checkpoint, model, ops, random_checkpoint

EXACT = model.Switches(fp8_linear=False, fp8_latent=False, fp8_indexer=False, bf16_rounding=False)


def distance(x, y):
    return 1 - 2 * np.sum(x * y) / (np.sum(x * x) + np.sum(y * y))


@pytest.fixture(scope="module")
def micro(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v32-micro")
    return checkpoint.Checkpoint(random_checkpoint.write(folder, random_checkpoint.MICRO, seed=3))


@pytest.fixture(scope="module")
def tokens(micro):
    return np.random.default_rng(5).integers(0, micro.config.vocab_size, 90)


@pytest.fixture(scope="module")
def deployed(micro, tokens):
    stages = {}
    out = model.Model(micro).forward(tokens, stages.__setitem__)
    return out, stages


@pytest.mark.parametrize(
    ("config", "tensors", "elements", "data_bytes"),
    [(random_checkpoint.MICRO, 190, 4.128e6, 4_695_212), (random_checkpoint.TINY, 536, 20.695e6, 25_061_800)],
    ids=["v32-micro", "v32-tiny"],
)
def test_checkpoints_have_the_specified_totals(tmp_path, config, tensors, elements, data_bytes):
    loaded = checkpoint.Checkpoint(random_checkpoint.write(tmp_path, config, seed=1))
    stored = [loaded._tensors[name] for name in loaded.names()]
    assert len(stored) == tensors
    assert sum(t.bits.nbytes for t in stored) == data_bytes
    assert sum(t.bits.size for t in stored) == pytest.approx(elements, rel=1e-3)


def test_absorbed_attention_equals_expanded_attention(micro, tokens):
    absorbed = model.Model(micro, EXACT).forward(tokens).logits
    expanded = model.Model(micro, dataclasses.replace(EXACT, absorbed=False)).forward(tokens).logits
    np.testing.assert_allclose(absorbed, expanded, rtol=0, atol=1e-10 * np.abs(absorbed).max())


@pytest.mark.parametrize("layer", [0, 1], ids=["dense", "moe"])
@pytest.mark.parametrize(
    "switches",
    [model.Switches()] + [dataclasses.replace(EXACT, **{f.name: True}) for f in dataclasses.fields(EXACT)[:4]],
    ids=["all", "fp8_linear", "fp8_latent", "fp8_indexer", "bf16_rounding"],
)
def test_every_switch_changes_a_layer_a_little(micro, tokens, layer, switches):
    exact = model.Model(micro, EXACT).forward(tokens, layers=[layer]).logits
    emulated = model.Model(micro, switches).forward(tokens, layers=[layer]).logits
    rows = [distance(a, b) for a, b in zip(emulated, exact)]
    assert 0 < np.mean(rows) and np.median(rows) < 1e-2


def test_noise_of_fp32s_size_hardly_moves_a_layer(micro, tokens):
    still = model.Model(micro).forward(tokens, layers=[1]).logits
    noisy = model.Model(micro, noise=np.random.default_rng(0)).forward(tokens, layers=[1]).logits
    assert 0 < np.median([distance(a, b) for a, b in zip(noisy, still)]) < 1e-3


def test_a_row_depends_on_the_tokens_before_it_alone(micro, tokens, deployed):
    whole = deployed[0].logits
    for n in (1, 16, 17, 64):
        prefix = model.Model(micro).forward(tokens[:n]).logits
        # Float64 sums of other shapes may move a rounding, hardly ever and never far before chaos sets in.
        assert np.median([distance(a, b) for a, b in zip(prefix, whole[:n])]) < 1e-6
    exact = model.Model(micro, EXACT)
    np.testing.assert_allclose(exact.forward(tokens[:40]).logits, exact.forward(tokens).logits[:40], atol=1e-9)


def test_changing_a_token_changes_its_row_and_later_ones_only(micro, tokens):
    exact = model.Model(micro, EXACT)
    changed = tokens.copy()
    changed[50] = (changed[50] + 1) % micro.config.vocab_size
    difference = np.abs(exact.forward(changed).logits - exact.forward(tokens).logits).max(axis=1)
    assert difference[:50].max() < 1e-9
    assert difference[50] > 1e-2


def test_rows_within_index_topk_attend_to_everything_and_longer_ones_to_index_topk(micro, deployed):
    k = micro.config.index_topk
    for layer in range(micro.config.num_hidden_layers):
        selected = deployed[1][f"L{layer}.selected"]
        for t, row in enumerate(selected):
            kept = row[row >= 0]
            assert len(kept) == min(k, t + 1) and kept[-1] <= t
            if t < k:
                assert kept.tolist() == list(range(t + 1))


def test_dense_attention_up_to_a_context_is_attention_to_everything_there_and_the_indexers_choice_beyond(micro, tokens):
    stages, whole = {}, {}
    dense = model.Model(micro, model.Switches(dense_attention_max_context=50))
    dense.forward(tokens, stages.__setitem__)
    everything = model.Model(micro)
    everything.config = dataclasses.replace(micro.config, index_topk=len(tokens))
    expected = everything.forward(tokens, whole.__setitem__)
    assert np.array_equal(stages["L1.attention"][:50], whole["L1.attention"][:50])
    assert np.array_equal((stages["L0.selected"] >= 0).sum(1), [*range(1, 51), *[micro.config.index_topk] * 40])
    all_dense = model.Model(micro, model.Switches(dense_attention_max_context=90)).forward(tokens)
    assert np.array_equal(all_dense.logits, expected.logits)


def test_the_indexer_decides(micro, deployed):
    """Not merely the most recent tokens: the test would otherwise not notice an indexer that is never asked."""
    k = micro.config.index_topk
    recent = [set(range(t + 1 - k, t + 1)) for t in range(60, 90)]
    chosen = [set(row[row >= 0]) for row in deployed[1]["L0.selected"][60:90]]
    assert all(a != b for a, b in zip(recent, chosen))


def test_index_logits_hardly_feel_hadamard_and_fp8(micro, tokens):
    stages = [{}, {}]
    for switches, captured in zip((EXACT, dataclasses.replace(EXACT, fp8_indexer=True)), stages):
        model.Model(micro, switches).forward(tokens, captured.__setitem__)
    causal = np.tri(len(tokens), dtype=bool)
    exact, quantised = (s["L0.index_logits"][causal] for s in stages)
    assert 0 < distance(exact, quantised) < 2e-3


def test_mtp_rows_pair_the_hidden_state_with_the_next_token(micro, tokens):
    m = model.Model(micro, EXACT)
    out = m.forward(tokens[:-1])
    logits = m.forward_mtp(out.final_hidden, tokens[1:], out)
    assert logits.shape == out.logits.shape
    other_next = tokens[1:].copy()
    other_next[30] = (other_next[30] + 1) % micro.config.vocab_size
    difference = np.abs(m.forward_mtp(out.final_hidden, other_next, out) - logits).max(axis=1)
    assert difference[:30].max() < 1e-9 and difference[30] > 1e-2
    other_hidden = out.final_hidden.copy()
    other_hidden[30] = ops.hadamard(other_hidden[30])
    difference = np.abs(m.forward_mtp(other_hidden, tokens[1:], out) - logits).max(axis=1)
    assert difference[:30].max() < 1e-9 and difference[30] > 1e-2


def test_margins_have_a_row_per_layer_with_the_mtp_layer_last(micro, tokens):
    m = model.Model(micro)
    out = m.forward(tokens[:-1])
    m.forward_mtp(out.final_hidden, tokens[1:], out)
    layers = micro.config.num_hidden_layers + 1
    assert np.shape(out.index_margin) == (layers, len(tokens) - 1)
    assert np.shape(out.router_margin) == (layers, len(tokens) - 1)
    assert np.all(np.isinf(out.router_margin[0])) and np.all(np.isfinite(out.router_margin[1:]))
