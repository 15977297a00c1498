"""Dimensions of the tiny checkpoint: DeepSeek-V3.2 with every part, latent 512 + 64 and index key 128 as in the real one.

Splits over 2, 4 and 8 ranks cut no group of 128 quantised channels: heads 8, o_proj K 1024, dense down_proj K 1024,
16 experts. Every K is a multiple of 128.
"""

import dataclasses
import math

from tokenizer_size import VOCAB_SIZE


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = VOCAB_SIZE
    hidden_size: int = 384
    num_hidden_layers: int = 5
    first_k_dense_replace: int = 1
    num_attention_heads: int = 8
    q_lora_rank: int = 256
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    intermediate_size: int = 1024
    moe_intermediate_size: int = 128
    n_routed_experts: int = 16
    n_shared_experts: int = 1
    num_experts_per_tok: int = 4
    n_group: int = 4
    topk_group: int = 2
    routed_scaling_factor: float = 2.5
    index_n_heads: int = 4
    index_head_dim: int = 128
    index_topk: int = 128
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_factor: float = 40.0
    rope_original: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @property
    def qk_head_dim(self):
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def softmax_scale(self):
        m = 0.1 * math.log(self.rope_factor) + 1
        return self.qk_head_dim**-0.5 * m * m

    def rope_frequencies(self):
        """32 frequencies, YaRN applied at every position (specification: DeepSeek-V3.2, rope_scaling type yarn)."""
        dim = self.qk_rope_head_dim

        def correction(rotations):
            return dim * math.log(self.rope_original / (rotations * 2 * math.pi)) / (2 * math.log(self.rope_theta))

        low = max(math.floor(correction(self.beta_fast)), 0)
        high = min(math.ceil(correction(self.beta_slow)), dim - 1)
        frequencies = []
        for i in range(dim // 2):
            inverse = self.rope_theta ** (-2 * i / dim)
            ramp = min(max((i - low) / max(high - low, 0.001), 0), 1)
            frequencies.append(inverse * (1 - ramp) + inverse / self.rope_factor * ramp)
        return frequencies
