"""The PyTorch model in FP32 against the NumPy float64 reference, on the trained weights: logits of a dialogue longer than
index_topk, and the MTP layer's. Where a choice of positions or experts hangs on FP32's last bit the row, and those that
attend to it, may differ more; almost every row agrees a hundred times better than it must."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch, which only training does")
pytest.importorskip("safetensors")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT)]

from config import Config  # noqa: E402
from data import Encoder  # noqa: E402
from load import load_checkpoint  # noqa: E402
from model import Batch, TinyModel  # noqa: E402
from tasks import retrieval, tool_calls  # noqa: E402
from tools.reference.checkpoint import Checkpoint  # noqa: E402
from tools.reference.model import Model, Switches  # noqa: E402

CHECKPOINT = ROOT / "checkpoints" / "tandem-tiny"
BOUND = 1e-3  # of the largest logit: the specification's for FP32 without quantised activations


@pytest.mark.parametrize("draw", [lambda rng: tool_calls.tools(rng, True, True, 3), lambda rng: retrieval.retrieval(rng, 420, 6, 2)],
                         ids=["tools", "retrieval"])
def test_pytorch_is_numpy(draw):
    ids, _ = Encoder(str(CHECKPOINT / "tokenizer.json")).encode(draw(random.Random(6)))
    ids = ids[:300]
    assert len(ids) > 2 * Config.index_topk
    model = TinyModel(Config(), torch.float32)
    load_checkpoint(model, CHECKPOINT)
    model.eval()
    batch = Batch(torch.from_numpy(ids).long()[None], torch.arange(len(ids), dtype=torch.int32)[None],
                  torch.zeros(1, len(ids), dtype=torch.int32), torch.tensor(Config().rope_frequencies())).all_sparse()
    with torch.no_grad():
        hidden, drafts, _, _ = model(batch, 1)
        logits, mtp_logits = (model.logits(x)[0].double().numpy() for x in (hidden, drafts[0]))
    reference = Model(Checkpoint(CHECKPOINT), Switches(False, False, False, False, False))
    out = reference.forward(ids)
    mtp = reference.forward_mtp(out.final_hidden, np.append(ids[1:], ids[-1]), out)
    for ours, theirs in ((logits, out.logits), (mtp_logits, mtp)):
        far = np.abs(ours - theirs).max(-1) / np.abs(theirs).max()
        print(f"largest {far.max():.1e} median {np.median(far):.1e} beyond the bound {np.mean(far > BOUND):.3f}")
        assert np.median(far) <= BOUND / 100 and np.mean(far > BOUND) <= 0.02
