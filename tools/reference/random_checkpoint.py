"""A seeded random checkpoint in the Hugging Face layout, for tests of the reference itself.

Same tensor names, shapes and distributions as tools/make_checkpoint, other numbers.
"""

import json
from pathlib import Path

import numpy as np

from tools.reference import dtypes, safetensors_io

COMMON = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 128,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "index_head_dim": 128,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "scale_fmt": "ue8m0",
    },
}

MICRO = COMMON | {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "index_n_heads": 4,
    "index_topk": 16,
}

TINY = COMMON | {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "vocab_size": 4096,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "index_n_heads": 8,
    "index_topk": 64,
}


def quantise_weight(w):
    """[out, in] -> tensors (weight, weight_scale_inv) with power-of-two scales per 128 x 128 block."""
    out, inner = w.shape
    blocks = np.zeros((-(-out // 128), inner // 128))
    for i, j in np.ndindex(blocks.shape):
        blocks[i, j] = np.abs(w[128 * i : 128 * (i + 1), 128 * j : 128 * (j + 1)]).max()
    scale = dtypes.power_of_two_at_least((blocks / 448).astype(np.float32))
    q = dtypes.round_e4m3(w / dtypes.dequantise_blocks(np.ones_like(w), scale))
    return safetensors_io.e4m3(q), safetensors_io.f32(scale)


class _Writer:
    def __init__(self, config, seed):
        self.config = config
        self.random = np.random.default_rng(seed)
        self.tensors = {}

    def normal(self, *shape, std):
        return self.random.normal(0, std, shape)

    def fp8(self, name, out, inner):
        weight, scale = quantise_weight(self.normal(out, inner, std=inner**-0.5))
        self.tensors |= {name + ".weight": weight, name + ".weight_scale_inv": scale}

    def bf16(self, name, value):
        self.tensors[name + ".weight"] = safetensors_io.bf16(dtypes.round_bf16(value))

    def norm(self, name, n):
        self.bf16(name, 1 + 0.1 * self.normal(n, std=1))

    def mlp(self, prefix, width):
        hidden = self.config["hidden_size"]
        self.fp8(prefix + "gate_proj", width, hidden)
        self.fp8(prefix + "up_proj", width, hidden)
        self.fp8(prefix + "down_proj", hidden, width)

    def layer(self, layer):
        c = self.config
        hidden, heads, q_lora, kv_lora = (
            c[k] for k in ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank")
        )
        prefix = f"model.layers.{layer}."
        self.norm(prefix + "input_layernorm", hidden)
        self.norm(prefix + "post_attention_layernorm", hidden)
        attention = prefix + "self_attn."
        self.fp8(attention + "q_a_proj", q_lora, hidden)
        self.norm(attention + "q_a_layernorm", q_lora)
        self.fp8(attention + "q_b_proj", heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), q_lora)
        self.fp8(attention + "kv_a_proj_with_mqa", kv_lora + c["qk_rope_head_dim"], hidden)
        self.norm(attention + "kv_a_layernorm", kv_lora)
        self.fp8(attention + "kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), kv_lora)
        self.fp8(attention + "o_proj", hidden, heads * c["v_head_dim"])
        indexer = attention + "indexer."
        self.fp8(indexer + "wq_b", c["index_n_heads"] * c["index_head_dim"], q_lora)
        self.fp8(indexer + "wk", c["index_head_dim"], hidden)
        self.tensors[indexer + "k_norm.weight"] = safetensors_io.f32(1 + self.normal(c["index_head_dim"], std=0.1))
        self.tensors[indexer + "k_norm.bias"] = safetensors_io.f32(self.normal(c["index_head_dim"], std=0.1))
        self.bf16(indexer + "weights_proj", self.normal(c["index_n_heads"], hidden, std=hidden**-0.5))
        mlp = prefix + "mlp."
        if layer < c["first_k_dense_replace"]:
            self.mlp(mlp, c["intermediate_size"])
            return
        self.bf16(mlp + "gate", 2 * self.normal(c["n_routed_experts"], hidden, std=hidden**-0.5))
        self.tensors[mlp + "gate.e_score_correction_bias"] = safetensors_io.f32(
            self.random.uniform(-0.2, 0.2, c["n_routed_experts"])
        )
        for expert in range(c["n_routed_experts"]):
            self.mlp(f"{mlp}experts.{expert}.", c["moe_intermediate_size"])
        self.mlp(mlp + "shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])


def write(folder, config, seed):
    """Writes config.json and model.safetensors into folder, which is made."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    w = _Writer(config, seed)
    hidden, vocab, mtp = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    w.bf16("model.embed_tokens", w.normal(vocab, hidden, std=1))
    w.norm("model.norm", hidden)
    w.bf16("lm_head", 4 * w.normal(vocab, hidden, std=hidden**-0.5))
    for layer in range(mtp + 1):
        w.layer(layer)
    prefix = f"model.layers.{mtp}."
    w.norm(prefix + "enorm", hidden)
    w.norm(prefix + "hnorm", hidden)
    w.norm(prefix + "shared_head.norm", hidden)
    w.bf16(prefix + "eh_proj", w.normal(hidden, 2 * hidden, std=(2 * hidden) ** -0.5))
    w.tensors[prefix + "embed_tokens.weight"] = w.tensors["model.embed_tokens.weight"]
    w.tensors[prefix + "shared_head.head.weight"] = w.tensors["lm_head.weight"]
    safetensors_io.write(folder / "model.safetensors", w.tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder
