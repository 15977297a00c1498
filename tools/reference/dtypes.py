"""BF16, E4M3FN and UE8M0: rounding as arithmetic on float64, and packing to bits.

A value is rounded by finding the spacing of representable numbers around it and rounding to the nearest even multiple,
so that normals, subnormals and ties need no case of their own. Checked against ml_dtypes in dtypes_test.py.
"""

import numpy as np

E4M3_MAX = 448.0
AMAX_FLOOR = np.float32(1e-4)


def _round_to_spacing(x, mantissa_bits, min_exponent):
    """Nearest multiple, ties to even, of 2^(exponent(x) - mantissa_bits); exponent is at least min_exponent."""
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(x)[1] - 1, min_exponent)
    spacing = np.ldexp(1.0, exponent - mantissa_bits)
    return np.where(np.isfinite(x), np.rint(x / spacing) * spacing, x)


def round_bf16(x):
    """float64 -> the nearest BF16 value, as float64. Overflow goes to infinity."""
    y = _round_to_spacing(x, mantissa_bits=7, min_exponent=-126)
    return np.where(np.abs(y) >= 2.0**128, np.copysign(np.inf, y), y)


def round_e4m3(x):
    """float64 -> the nearest E4M3 value, saturating at 448, as float64. NaN stays NaN."""
    return np.clip(_round_to_spacing(x, mantissa_bits=3, min_exponent=-6), -E4M3_MAX, E4M3_MAX)


def bf16_to_bits(x):
    """BF16 values -> uint16 codes. The input must be representable."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    if np.any((bits & 0xFFFF) != 0):
        raise ValueError("a value is not representable in BF16: round it first")
    return (bits >> 16).astype(np.uint16)


def bf16_from_bits(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def e4m3_table():
    """Value of each of the 256 codes; 0x7F and 0xFF are NaN."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.ldexp(1.0, exponent - 10))
    magnitude[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code < 128, magnitude, -magnitude)


_E4M3_VALUES = e4m3_table()


def e4m3_from_bits(bits):
    return _E4M3_VALUES[np.asarray(bits, np.uint8)]


def e4m3_to_bits(x):
    """E4M3 values -> uint8 codes. The input must be representable; -0.0 keeps its sign."""
    x = np.asarray(x, np.float64)
    magnitude = np.abs(x)
    code = np.searchsorted(_E4M3_VALUES[:127], np.where(np.isnan(x), 0.0, magnitude))
    code = np.where(np.isnan(x), 127, np.minimum(code, 126))
    if not np.array_equal(_E4M3_VALUES[code], magnitude, equal_nan=True):
        raise ValueError("a value is not representable in E4M3: round it first")
    return (code | (np.signbit(x) << 7)).astype(np.uint8)


def power_of_two_at_least(s):
    """2^ceil(log2 s) for positive float32 s, by its bits."""
    bits = np.asarray(s, np.float32).view(np.uint32)
    exponent = (bits >> 23).astype(np.int64) - 127 + ((bits & 0x7FFFFF) != 0)
    return np.ldexp(1.0, exponent)


def quantise(x, scale_format="ue8m0", group=128):
    """Groups of `group` channels of the last axis -> (E4M3 values as float64 [..., K], float32 scales [..., K/group]).

    Multiplications and divisions are FP32, as the format defines them: the result is exact, not a tolerance.
    """
    x = np.asarray(x, np.float32)
    if x.shape[-1] % group:
        raise ValueError(f"last axis of {x.shape} is not a multiple of {group}")
    groups = x.reshape(*x.shape[:-1], -1, group)
    amax = np.maximum(np.abs(groups).max(axis=-1), AMAX_FLOOR)
    scale = amax * (np.float32(1) / np.float32(E4M3_MAX))
    if scale_format == "ue8m0":
        scale = power_of_two_at_least(scale).astype(np.float32)
    elif scale_format != "float32":
        raise ValueError(f"scale_format {scale_format!r} is neither 'ue8m0' nor 'float32'")
    q = round_e4m3(groups / scale[..., None])
    return q.reshape(x.shape), scale


def dequantise(q, scale, group=128):
    """Inverse of quantise, exact in float64."""
    return q * np.repeat(scale.astype(np.float64), group, axis=-1)


def dequantise_blocks(w, scale, block=128):
    """Weight [out, in] times its [ceil(out/block), ceil(in/block)] scales; the last block row or column may be cut."""
    expanded = np.repeat(np.repeat(scale.astype(np.float64), block, axis=0), block, axis=1)
    return w * expanded[: w.shape[0], : w.shape[1]]
