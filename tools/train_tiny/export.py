"""Writes the trained weights as a Hugging Face checkpoint: FP8 linears, BF16 rest, shards of at most 16 MB.

train.py calls it.
The MTP layer's copies of the embedding and the head are not stored: they are the main ones.
"""

import json
import os
import pathlib
import shutil

import torch
from safetensors.torch import save_file

import chat
from config import Config
from names import expand, is_fp8
from quantize import quantize

SHARD_BYTES = 15_000_000
KEEP_FP32 = ("e_score_correction_bias", "k_norm.weight", "k_norm.bias")


def checkpoint_tensors(weights, config):
    for name, tensor in expand(weights, config):
        if is_fp8(name):
            q, scale = quantize(tensor)
            yield name, q
            yield name + "_scale_inv", scale
        elif name.endswith(KEEP_FP32):
            yield name, tensor.float().contiguous()
        else:
            yield name, tensor.to(torch.bfloat16).contiguous()


def config_json(c):
    return {
        "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "attention_bias": False,
        "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
        "first_k_dense_replace": c.first_k_dense_replace, "hidden_act": "silu", "hidden_size": c.hidden_size,
        "index_head_dim": c.index_head_dim, "index_n_heads": c.index_n_heads, "index_topk": c.index_topk,
        "initializer_range": 0.02, "intermediate_size": c.intermediate_size, "kv_lora_rank": c.kv_lora_rank,
        "max_position_embeddings": 163840, "moe_intermediate_size": c.moe_intermediate_size, "moe_layer_freq": 1,
        "n_group": c.n_group, "n_routed_experts": c.n_routed_experts, "n_shared_experts": c.n_shared_experts,
        "norm_topk_prob": True, "num_attention_heads": c.num_attention_heads, "num_experts_per_tok": c.num_experts_per_tok,
        "num_hidden_layers": c.num_hidden_layers, "num_key_value_heads": c.num_attention_heads,
        "num_nextn_predict_layers": 1, "q_lora_rank": c.q_lora_rank, "qk_nope_head_dim": c.qk_nope_head_dim,
        "qk_rope_head_dim": c.qk_rope_head_dim,
        "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
                                "weight_block_size": [128, 128]},
        "rms_norm_eps": c.rms_norm_eps,
        "rope_scaling": {"beta_fast": c.beta_fast, "beta_slow": c.beta_slow, "factor": c.rope_factor, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": c.rope_original, "type": "yarn"},
        "rope_theta": c.rope_theta, "routed_scaling_factor": c.routed_scaling_factor, "scoring_func": "sigmoid",
        "tie_word_embeddings": False, "topk_group": c.topk_group, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
        "use_cache": True, "v_head_dim": c.v_head_dim, "vocab_size": c.vocab_size,
    }


def write_json(folder, name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def write(weights, tokenizer_file, out, config=Config()):
    """weights: the state of the training model, on the CPU."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    shards, sizes = [{}], [0]
    for name, tensor in checkpoint_tensors(weights, config):
        size = tensor.numel() * tensor.element_size()
        if sizes[-1] + size > SHARD_BYTES:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = tensor
        sizes[-1] += size
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):06d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in shard})
    write_json(folder, "model.safetensors.index.json",
               {"metadata": {"total_size": sum(sizes)}, "weight_map": dict(sorted(weight_map.items()))})
    write_json(folder, "config.json", config_json(config))
    write_json(folder, "generation_config.json",
               {"bos_token_id": 0, "eos_token_id": 1, "do_sample": True, "temperature": 1.0, "top_p": 0.95})
    shutil.copyfile(tokenizer_file, folder / "tokenizer.json")
    write_json(folder, "tokenizer_config.json",
               {"add_bos_token": False, "add_eos_token": False, "bos_token": chat.BOS, "eos_token": chat.EOS,
                "pad_token": chat.EOS, "unk_token": None, "clean_up_tokenization_spaces": False,
                "model_max_length": 16384, "tokenizer_class": "PreTrainedTokenizerFast"})
    os.makedirs(folder / "encoding", exist_ok=True)
    (folder / "encoding" / "tools_preamble.txt").write_text(chat.TOOLS_PREAMBLE, encoding="utf-8")
    print(f"{sum(sizes)} bytes in {len(shards)} shards, {len(weight_map)} tensors")
