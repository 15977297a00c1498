"""Conversions against ml_dtypes, which shares no code with dtypes.py."""

import ml_dtypes
import numpy as np
import pytest

from tools.reference import dtypes


def every_bf16():
    codes = np.arange(65536, dtype=np.uint16)
    finite = (codes & 0x7F80) != 0x7F80
    return codes[finite].view(ml_dtypes.bfloat16).astype(np.float64)


def test_every_e4m3_code_has_the_value_that_ml_dtypes_gives():
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    np.testing.assert_array_equal(dtypes.e4m3_table(), expected)


def test_every_e4m3_code_survives_unpacking_and_packing():
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(dtypes.e4m3_to_bits(dtypes.e4m3_from_bits(codes)) & 0x7F, codes & 0x7F)
    signed = codes[(codes & 0x7F) != 0x7F]
    np.testing.assert_array_equal(dtypes.e4m3_to_bits(dtypes.e4m3_from_bits(signed)), signed)


def test_every_bf16_value_rounds_to_e4m3_as_in_ml_dtypes():
    x = every_bf16()
    x = x[np.abs(x) <= 448]  # beyond, ml_dtypes gives NaN and the format of the model saturates
    expected = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(dtypes.e4m3_to_bits(dtypes.round_e4m3(x)), expected)


@pytest.mark.parametrize("x", [448.1, 464.0, 465.0, 1e30, np.inf])
def test_e4m3_saturates(x):
    assert dtypes.round_e4m3(x) == 448
    assert dtypes.round_e4m3(-x) == -448


def test_bf16_rounds_float32_bit_patterns_as_ml_dtypes_does():
    random = np.random.default_rng(1)
    bits = random.integers(0, 2**32, 300_000, dtype=np.uint32)
    ties = (bits & 0xFFFF0000) | 0x8000
    x = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    x = x[np.isfinite(x)]
    expected = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(dtypes.bf16_to_bits(dtypes.round_bf16(x.astype(np.float64))), expected)


def test_bf16_is_rounded_once_from_float64():
    # Just above a tie, by less than FP32 can see: rounding through FP32 would go down to the even code.
    assert dtypes.round_bf16(1 + 2.0**-8 + 2.0**-40) == 1 + 2.0**-7


def test_packing_refuses_values_that_were_not_rounded():
    with pytest.raises(ValueError, match="BF16"):
        dtypes.bf16_to_bits(1.001)
    with pytest.raises(ValueError, match="E4M3"):
        dtypes.e4m3_to_bits(1.01)


def test_powers_of_two_stay_and_everything_else_goes_up():
    exponents = np.arange(-100, 100)
    powers = np.ldexp(1.0, exponents).astype(np.float32)
    np.testing.assert_array_equal(dtypes.power_of_two_at_least(powers), powers)
    above = np.nextafter(powers, np.float32(np.inf))
    np.testing.assert_array_equal(dtypes.power_of_two_at_least(above), 2 * powers.astype(np.float64))


def test_amax_of_448_has_scale_one():
    _, scale = dtypes.quantise(np.full((1, 128), 448.0))
    assert scale == 1


@pytest.mark.parametrize("scale_format", ["ue8m0", "float32"])
def test_quantised_groups_stay_within_half_a_step(scale_format):
    x = dtypes.round_bf16(np.random.default_rng(2).normal(0, 3, (50, 512)))
    q, scale = dtypes.quantise(x, scale_format)
    assert np.abs(q).max() <= 448
    error = np.abs(dtypes.dequantise(q, scale) - x)
    step = np.maximum(np.abs(x) * 2.0**-4, np.repeat(scale, 128, axis=1) * 2.0**-10)
    assert np.all(error <= step * (1 + 1e-6))


def test_ue8m0_uses_the_upper_half_of_the_range():
    x = dtypes.round_bf16(np.random.default_rng(3).normal(0, 3, (50, 128)))
    q, _ = dtypes.quantise(x)
    assert np.all(np.abs(q).max(axis=1) > 208)  # 224 less half a step


def test_a_group_of_zeros_has_the_scale_of_the_amax_floor():
    q, scale = dtypes.quantise(np.zeros((1, 128)))
    assert np.all(q == 0)
    assert scale == 2.0 ** np.ceil(np.log2(1e-4 / 448))


def test_ragged_blocks_take_their_own_scale_row():
    w = np.ones((576, 256))
    scale = np.arange(10, dtype=np.float32).reshape(5, 2)
    expanded = dtypes.dequantise_blocks(w, scale)
    assert expanded.shape == (576, 256)
    assert expanded[511, 127] == 6 and expanded[512, 0] == 8 and expanded[575, 255] == 9
