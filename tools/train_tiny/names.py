"""Which tensor of the training model is which of a Hugging Face checkpoint, and which of them are FP8."""

FP8 = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "indexer.wq_b", "indexer.wk", "gate_proj",
       "up_proj", "down_proj")


def is_fp8(name):
    return name.removesuffix(".weight").endswith(FP8)


def expand(weights, config):
    """Yields (checkpoint name, tensor) for every tensor of the training model's state."""
    for name, tensor in weights.items():
        if name.startswith("mtp."):
            yield from expand_mtp(name.removeprefix("mtp."), tensor, config.num_hidden_layers)
        elif name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            yield from expand_block(f"model.layers.{layer}.", rest, tensor)
        elif name == "lm_head":
            yield "lm_head.weight", tensor
        elif name == "embed_tokens":
            yield "model.embed_tokens.weight", tensor
        elif name == "norm.weight":
            yield "model.norm.weight", tensor
        else:
            raise ValueError(f"no place for {name}")


def expand_mtp(name, tensor, layer):
    prefix = f"model.layers.{layer}."
    if name.startswith("block."):
        yield from expand_block(prefix, name.removeprefix("block."), tensor)
    elif name == "shared_head_norm.weight":
        yield prefix + "shared_head.norm.weight", tensor
    else:
        yield prefix + (name if name.endswith(".weight") else name + ".weight"), tensor


def expand_block(prefix, name, tensor):
    if name == "mlp.bias":
        yield prefix + "mlp.gate.e_score_correction_bias", tensor
    elif name.startswith("self_attn.indexer.k_norm_"):
        yield prefix + "self_attn.indexer.k_norm." + name.rsplit("_", 1)[1], tensor
    elif name.startswith("mlp.") and tensor.ndim == 3:
        for expert, matrix in enumerate(tensor):
            yield f"{prefix}mlp.experts.{expert}.{name.removeprefix('mlp.')}.weight", matrix
    elif name.startswith("mlp.shared."):
        yield prefix + name.replace("mlp.shared.", "mlp.shared_experts.") + ".weight", tensor
    else:
        yield prefix + (name if name.endswith(".weight") else name + ".weight"), tensor
