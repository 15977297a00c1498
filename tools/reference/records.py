"""The bytes of the KV cache: one latent record per token, one index page per 64 tokens."""

import numpy as np

from tools.reference import dtypes

PAGE_TOKENS = 64
LATENT_RECORD_BYTES = 656  # 512 E4M3 + 4 FP32 scales + 64 BF16
INDEX_PAGE_BYTES = PAGE_TOKENS * 132  # 64 x 128 E4M3, then 64 FP32 scales


def latent_records(c, k_rope):
    """c [T,512], k_rope [T,64] (BF16 values) -> uint8 [T,656]."""
    q, scale = dtypes.quantise(c)
    return np.concatenate(
        [
            dtypes.e4m3_to_bits(q),
            np.ascontiguousarray(scale.astype("<f4")).view(np.uint8),
            np.ascontiguousarray(dtypes.bf16_to_bits(k_rope).astype("<u2")).view(np.uint8),
        ],
        axis=1,
    )


def read_latent_records(records):
    """uint8 [T,656] -> (c [T,512] dequantised, k_rope [T,64])."""
    q = dtypes.e4m3_from_bits(records[:, :512])
    scale = np.ascontiguousarray(records[:, 512:528]).view("<f4")
    return dtypes.dequantise(q, scale), dtypes.bf16_from_bits(np.ascontiguousarray(records[:, 528:]).view("<u2"))


def latent_records_bf16(c, k_rope):
    """c [T,512], k_rope [T,64] (BF16 values) -> uint8 [T,1152]: the records of kv_cache_dtype bfloat16."""
    return np.ascontiguousarray(dtypes.bf16_to_bits(np.concatenate([c, k_rope], axis=1)).astype("<u2")).view(np.uint8)


def read_latent_records_bf16(records):
    """uint8 [T,1152] -> (c [T,512], k_rope [T,64])."""
    values = dtypes.bf16_from_bits(np.ascontiguousarray(records).view("<u2"))
    return values[:, :512], values[:, 512:]


def index_page(k):
    """k [T <= 64, 128] (BF16 values) -> uint8 [8448]; bytes of absent tokens are zero."""
    q, scale = dtypes.quantise(k)
    page = np.zeros(INDEX_PAGE_BYTES, np.uint8)
    page[: q.size] = dtypes.e4m3_to_bits(q).reshape(-1)
    first = PAGE_TOKENS * 128
    page[first : first + 4 * len(k)] = scale.reshape(-1).astype("<f4").view(np.uint8)
    return page


def read_index_page(page):
    """uint8 [8448] -> (E4M3 values [64,128], scales [64])."""
    split = PAGE_TOKENS * 128
    return dtypes.e4m3_from_bits(page[:split]).reshape(PAGE_TOKENS, 128), page[split:].copy().view("<f4")
