"""A checkpoint folder in the Hugging Face layout: config.json and safetensors shards, tensors by name."""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

from tools.reference import dtypes, safetensors_io


@dataclass(frozen=True)
class Config:
    """config.json by its own names, plus rope and quantisation flattened."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_nextn_predict_layers: int
    first_k_dense_replace: int
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    n_group: int
    topk_group: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    rope_theta: float
    rope_factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    mscale_all_dim: float
    scale_format: str

    @staticmethod
    def parse(raw):
        rope = raw.get("rope_scaling") or raw["rope_parameters"]
        flat = {
            "rope_theta": raw.get("rope_theta", rope.get("rope_theta")),
            "rope_factor": rope["factor"],
            "original_max_position_embeddings": rope["original_max_position_embeddings"],
            "beta_fast": rope["beta_fast"],
            "beta_slow": rope["beta_slow"],
            "mscale_all_dim": rope["mscale_all_dim"],
            "scale_format": raw["quantization_config"].get("scale_fmt", "float32"),
        }
        return Config(**{f.name: flat[f.name] if f.name in flat else raw[f.name] for f in fields(Config)})


class Checkpoint:
    """Tensors as float64; FP8 linears come dequantised. Everything is kept once read: meant for small models."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = Config.parse(json.loads((self.folder / "config.json").read_text()))
        self.shards = sorted(self.folder.glob("*.safetensors"))
        if not self.shards:
            raise FileNotFoundError(f"{folder}: no *.safetensors")
        self._tensors = {}
        for shard in self.shards:
            for name, tensor in safetensors_io.read(shard).items():
                if name in self._tensors:
                    raise ValueError(f"{shard}: tensor {name} is in another shard too")
                self._tensors[name] = tensor
        self._values = {}

    def names(self):
        return self._tensors.keys()

    def has(self, name):
        return name in self._tensors

    def values(self, name):
        """A weight in float64, times its block scales where it is FP8."""
        if name not in self._values:
            tensor = self._tensors[name]
            value = tensor.values()
            if tensor.dtype == "F8_E4M3":
                value = dtypes.dequantise_blocks(value, self._tensors[name + "_scale_inv"].bits)
            self._values[name] = value
        return self._values[name]

    def is_fp8(self, name):
        return self._tensors[name].dtype == "F8_E4M3"

    def sha256(self):
        """file name -> digest, of every file that the model's numbers depend on."""
        files = [self.folder / "config.json", *self.shards]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
