"""Philox against its authors' known answers; draws against the distribution they are to follow."""

import numpy as np
import pytest

from tools.reference import sampling


@pytest.mark.parametrize(
    ("seed", "counter", "words"),
    [
        (0, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**64 - 1, [2**32 - 1] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            0x299F31D0A4093822,
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_answers(seed, counter, words):
    assert sampling.philox4x32(seed, counter).tolist() == words


def test_noise_follows_the_gumbel_distribution():
    noise = np.sort(sampling.gumbel(5, 0, 100, np.arange(100_000)))
    expected = np.exp(-np.exp(-noise))
    assert np.abs(expected - (np.arange(100_000) + 0.5) / 100_000).max() < 1.7 / np.sqrt(100_000)


def test_noise_belongs_to_seed_choice_position_and_token():
    base = sampling.gumbel(1, 0, 1, np.array(1))
    others = [sampling.gumbel(*a) for a in [(2, 0, 1, 1), (1 + 2**32, 0, 1, 1), (1, 1, 1, 1), (1, 0, 2, 1),
                                            (1, 0, 1 + 2**32, 1), (1, 0, 1, 2)]]  # fmt: skip
    assert len({float(base), *map(float, others)}) == 7


def test_draws_follow_the_softmax_of_the_kept_set():
    logits = np.array([2.0, 1.0, 0.0, 1.5, -1.0])
    ids, p, _ = sampling.kept_set(logits, 0.8, 4, 0.9)
    counts = np.zeros(5)
    for position in range(20_000):
        counts[sampling.sample(logits, 0.8, 4, 0.9, 9, 0, position)[0]] += 1
    expected = np.zeros(5)
    expected[ids] = p / p.sum()
    assert 0 < (expected == 0).sum() < 5
    np.testing.assert_allclose(counts / 20_000, expected, atol=0.015)


def test_the_kept_set_is_the_shortest_prefix_with_the_mass():
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    assert sampling.kept_set(logits, 1, 0, 0.69)[0].tolist() == [1, 3]
    assert sampling.kept_set(logits, 1, 0, 0.71)[0].tolist() == [1, 3, 2]
    assert sampling.kept_set(logits, 1, 2, 1.0)[0].tolist() == [1, 3]
    # Of the two kept by top_k, 0.4 / 0.7 is the mass of the first.
    assert sampling.kept_set(logits, 1, 2, 0.57)[0].tolist() == [1]
    assert sampling.kept_set(logits, 1, 2, 0.58)[0].tolist() == [1, 3]


def test_temperature_0_is_argmax_with_the_lower_id_on_ties():
    assert sampling.sample(np.array([1.0, 3.0, 3.0, np.nan]), 0, 0, 1, 1, 0, 0)[0] == 1


def test_penalties_by_hand():
    logits = np.array([2.0, -2.0, 1.0, 0.5, np.nan, -np.inf])
    # Token 0 is in the prompt, 1 in both, 2 twice in the answer.
    result = sampling.adjusted(logits, [0, 1, 0], [1, 2, 2], repetition=2.0, frequency=0.5, presence=0.25)
    assert result.tolist() == [1.0, -4.0 - 0.5 - 0.25, 0.5 - 1.0 - 0.25, 0.5, -np.inf, -np.inf]


def test_a_bias_is_added_after_penalties_and_minus_100_bans():
    logits = np.array([4.0, 4.0, 4.0, 4.0])
    result = sampling.adjusted(logits, [0, 1], [], repetition=2.0, bias=[(0, 1.5), (2, -100.0)], masked=[3])
    assert result.tolist() == [3.5, 2.0, -np.inf, -np.inf]


def test_min_p_keeps_what_is_at_least_that_share_of_the_likeliest():
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    assert sampling.kept_set(logits, 1, 0, 1.0, 0.49)[0].tolist() == [1, 3, 2]
    assert sampling.kept_set(logits, 1, 0, 1.0, 0.51)[0].tolist() == [1, 3]
    assert sampling.kept_set(logits, 1, 0, 1.0, 1.0)[0].tolist() == [1]
    # The share is of probabilities at this temperature: (0.2 / 0.4) ** 2.
    assert sampling.kept_set(logits, 0.5, 0, 1.0, 0.26)[0].tolist() == [1, 3]
    assert sampling.kept_set(logits, 0.5, 0, 1.0, 0.24)[0].tolist() == [1, 3, 2]


def test_logprobs_are_the_log_softmax_and_top_ones_are_ordered():
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.2, 0.1])) + 3
    np.testing.assert_allclose(np.exp(sampling.logprobs(logits)), [0.1, 0.4, 0.2, 0.2, 0.1])
    ids, values = sampling.top_logprobs(np.append(logits, -np.inf), 20)
    assert ids.tolist() == [1, 2, 3, 0, 4]
    np.testing.assert_allclose(np.exp(values), [0.4, 0.2, 0.2, 0.1, 0.1])
