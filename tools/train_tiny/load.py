"""Reads an exported checkpoint back into the training model: training goes on from it, evaluation judges what is shipped."""

import json
import pathlib

import torch
from safetensors import safe_open

from names import expand, is_fp8
from quantize import dequantize


@torch.no_grad()
def load_checkpoint(model, folder):
    """Fills every tensor of `model` from the checkpoint's folder, FP8 blocks as the numbers they stand for."""
    folder = pathlib.Path(folder)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    files = {name: safe_open(folder / name, framework="pt") for name in set(weight_map.values())}
    # The tensors of state_dict(), and the experts that expand() takes out of them, are views of the model's own.
    for name, tensor in expand(model.state_dict(), model.c):
        value = files[weight_map[name]].get_tensor(name)
        if is_fp8(name):
            scale = name + "_scale_inv"
            value = dequantize(value, files[weight_map[scale]].get_tensor(scale))
        tensor.copy_(value)
