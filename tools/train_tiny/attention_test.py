"""Attention of training against plain masked attention: outputs, gradients, and the indexer's loss."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch, which only training does")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import attention  # noqa: E402
from model import Batch  # noqa: E402

B, L, H, TOPK = 2, 40, 3, 7
DOCUMENT = torch.tensor([[0] * 25 + [1] * 12 + [-1] * 3, [0] * 9 + [1] * 31], dtype=torch.int32)


def made(seed):
    g = torch.Generator().manual_seed(seed)
    shapes = {"q": (B, L, H, 192), "latent": (B, L, 512), "k_rope": (B, L, 64), "w": (H, 256, 512), "iq": (B, L, 4, 128),
              "ik": (B, L, 128), "iw": (B, L, 4)}
    return {name: (torch.randn(shape, generator=g) * 0.2).requires_grad_() for name, shape in shapes.items()}


def keys_and_values(t):
    kv = torch.einsum("blr,hdr->blhd", t["latent"], t["w"])
    return torch.cat((kv[..., :128], t["k_rope"][:, :, None].expand(-1, -1, H, -1)), -1), kv[..., 128:]


def plain(t, topk, rows):
    """(outputs of every row with `rows` sparse, KL of each row), by masks on the full score matrix and scalar loops."""
    k, v = keys_and_values(t)
    out, kl = [], torch.zeros(B, L)
    for b in range(B):
        for i in range(L):
            keys = [j for j in range(i + 1) if DOCUMENT[b, j] == DOCUMENT[b, i]]
            index = torch.stack([sum(torch.relu(t["iq"][b, i, n] @ t["ik"][b, j]) * t["iw"][b, i, n] for n in range(4))
                                 for j in keys])
            scores = torch.einsum("hd,khd->hk", t["q"][b, i], k[b, keys]) * 0.3
            target = scores.softmax(-1).mean(0)
            kl[b, i] = (target * (target.log() - index.log_softmax(0))).sum()
            if i in rows[b]:
                best = sorted(range(len(keys)), key=lambda n: -index[n].item())[:topk]
                scores, keys = scores[:, best], [keys[n] for n in best]
            out.append(torch.einsum("hk,khd->hd", scores.softmax(-1), v[b, keys]))
    return torch.stack(out).view(B, L, H, 128), kl


def gradients(out, t):
    loss = (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum()
    return torch.autograd.grad(loss, [t["q"], t["latent"], t["k_rope"], t["w"]])


def test_sparse_rows_are_masked_attention_with_its_gradients(monkeypatch):
    monkeypatch.setattr(attention, "ROWS_AT_ONCE", 5)
    t, batch = made(1), Batch(torch.zeros(B, L), torch.zeros(B, L), DOCUMENT, torch.zeros(32))
    rows = torch.tensor([[24, 0, 3, 30, 17, 8, 36], [39, 12, 8, 20, 1, 30, 31]])
    k, v = keys_and_values(t)
    index = [t[name] for name in ("iq", "ik", "iw")]
    sparse = attention.sparse(t["q"], t["latent"], t["k_rope"], t["w"][:, :128], t["w"][:, 128:], index, batch, rows, 0.3,
                              TOPK)
    out = attention.dense(t["q"], k, v, batch, 0.3).scatter(1, rows[..., None, None].expand_as(sparse), sparse)
    expected, _ = plain(t, TOPK, rows)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    for mine, right in zip(gradients(out, t), gradients(expected, t)):
        torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-3)


def test_the_indexers_loss_and_health():
    t, batch = made(2), Batch(torch.zeros(B, L), torch.zeros(B, L), DOCUMENT, torch.zeros(32))
    rows = torch.tensor([[24, 3, 30], [39, 12, 8]])
    k, _ = keys_and_values(t)
    kl, health = attention.index_loss(t["q"], k, t["iq"], t["ik"], t["iw"], batch, rows, 0.3, TOPK, True)
    _, expected = plain(t, TOPK, [[], []])
    torch.testing.assert_close(kl, expected.gather(1, rows).sum(), rtol=1e-4, atol=1e-4)
    assert 0.9 < health[0] <= 1 and 0 < health[1] < 1


def test_a_dead_indexer_still_chooses_exactly_topk():
    zero = torch.zeros(B, L, 4)
    rows = torch.arange(L).expand(B, L)
    keys, valid = attention.choose(torch.ones(B, L, 4, 128), torch.ones(B, L, 128), zero, DOCUMENT, rows, TOPK)
    allowed = attention.allowed_keys(DOCUMENT, rows)
    assert (valid.sum(-1) == allowed.sum(-1).clamp(max=TOPK)).all()
    assert allowed.gather(-1, keys)[valid].all()
