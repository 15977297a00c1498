"""A checkpoint written by export and read by load is the model rounded to what the file's types hold."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch, which only training does")
pytest.importorskip("safetensors")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import export  # noqa: E402
from config import Config  # noqa: E402
from load import load_checkpoint  # noqa: E402
from model import TinyModel  # noqa: E402
from names import is_fp8  # noqa: E402

TOKENIZER = Path(__file__).resolve().parents[2] / "checkpoints" / "tandem-tiny" / "tokenizer.json"


def test_export_then_load(tmp_path):
    torch.manual_seed(5)
    config = Config(num_hidden_layers=2, n_routed_experts=4, n_group=2)
    model, read = TinyModel(config), TinyModel(config)
    for p in model.parameters():
        p.data.copy_(torch.randn_like(p) * 0.1)
    export.write(model.state_dict(), TOKENIZER, tmp_path, config)
    load_checkpoint(read, tmp_path)
    for (name, wrote), got in zip(model.state_dict().items(), read.state_dict().values()):
        # e4m3 has 3 bits of fraction and here 2^-9 of a block's scale as its smallest step; BF16 has 7 bits.
        relative, absolute = (2**-4, 2**-9 * wrote.abs().max().item()) if is_fp8(name) else (2**-8, 0)
        torch.testing.assert_close(got, wrote, rtol=relative, atol=absolute, msg=lambda text: f"{name}: {text}")
        assert (got != 0).any() or not (wrote != 0).any()
