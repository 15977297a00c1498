"""What attention computes in training: dense rows, sparse rows with the indexer's choice, and the indexer's own loss.

A batch is b rows of l tokens, several documents packed in each; a token sees earlier tokens of its document alone. Dense
attention is the flash kernel. Sparse attention runs on chosen rows only, in absorbed form on the latent, so that its cost
grows with rows x topk; the other rows stay dense, which differs little and costs little. The indexer learns by KL to the
head-mean of the dense attention on a sample of rows, its inputs detached. Held to plain masked attention by
attention_test.py.
"""

import torch
import torch.nn.functional as F

ROWS_AT_ONCE = 4096  # rows of one packed row whose index scores or gathered keys are held at once


def index_scores(q, k, w):
    """q [b, n, heads, d], k [b, l, d], w [b, n, heads] FP32 -> [b, n, l] FP32."""
    total = 0
    for head in range(q.shape[2]):
        total = total + F.relu(q[:, :, head] @ k.mT).float() * w[:, :, head, None]
    return total


compiled_index_scores = index_scores  # train.py puts the compiled one here


def take(x, rows):
    """x [b, l, ...], rows [b, n] -> [b, n, ...]."""
    b, l = x.shape[:2]
    flat = (rows + torch.arange(b, device=rows.device)[:, None] * l).flatten()
    return x.flatten(0, 1).index_select(0, flat).unflatten(0, rows.shape)


def allowed_keys(document, rows):
    """[b, n, l]: which keys each of `rows` [b, n] may see."""
    columns = torch.arange(document.shape[1], device=document.device)
    return (columns <= rows[..., None]) & (document[:, None, :] == take(document, rows)[..., None])


def dense(q, k, v, batch, scale):
    """q, k [b, l, h, 192], v [b, l, h, 128] -> [b, l, h, 128]."""
    b, l, h, d = q.shape
    if q.device.type != "cuda":
        rows = torch.arange(l, device=q.device).expand(b, l)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * scale
        p = scores.masked_fill(~allowed_keys(batch.document, rows)[:, None], float("-inf")).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", p.to(v.dtype), v)
    v = F.pad(v, (0, d - v.shape[-1]))
    out = torch.ops.aten._flash_attention_forward(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), batch.cu_lengths, batch.cu_lengths, batch.length_max,
        batch.length_max, 0.0, True, False, scale=scale)[0]
    return out.view(b, l, h, d)[..., :128]


class SparseAttend(torch.autograd.Function):
    """q [n, h, 576], kv [t, 576], chosen [n, k] rows of kv, valid [n, k] -> [n, h, 512]: softmax(q kv^T) kv[:, :512]."""

    @staticmethod
    def forward(ctx, q, kv, chosen, valid, scale):
        out, probabilities = [], []
        for begin in range(0, len(q), ROWS_AT_ONCE):
            part = slice(begin, begin + ROWS_AT_ONCE)
            keys = kv.index_select(0, chosen[part].flatten()).unflatten(0, chosen[part].shape)
            scores = (q[part] @ keys.mT).float() * scale
            p = scores.masked_fill(~valid[part, None], float("-inf")).softmax(-1).to(kv.dtype)
            probabilities.append(p)
            out.append(p @ keys[..., :512])
        ctx.scale = scale
        ctx.save_for_backward(q, kv, chosen, torch.cat(probabilities))
        return torch.cat(out)

    @staticmethod
    def backward(ctx, d_out):
        q, kv, chosen, probabilities = ctx.saved_tensors
        d_q, d_kv = [], torch.zeros(kv.shape, dtype=torch.float32, device=kv.device)
        for begin in range(0, len(q), ROWS_AT_ONCE):
            part = slice(begin, begin + ROWS_AT_ONCE)
            keys = kv.index_select(0, chosen[part].flatten()).unflatten(0, chosen[part].shape)
            p, d_o = probabilities[part], d_out[part]
            d_p = (d_o @ keys[..., :512].mT).float()
            d_scores = (p.float() * (d_p - (d_p * p).sum(-1, keepdim=True)) * ctx.scale).to(kv.dtype)
            d_q.append(d_scores @ keys)
            left = torch.cat((d_scores, p), 1)
            right = torch.cat((q[part], F.pad(d_o, (0, kv.shape[-1] - 512))), 1)
            d_kv.index_add_(0, chosen[part].flatten(), (left.mT @ right).flatten(0, 1).float())
        return torch.cat(d_q), d_kv.to(kv.dtype), None, None, None


@torch.no_grad()
def choose(iq, ik, iw, document, rows, topk):
    """(keys [b, n, k] of the packed row, which of them are real): the topk highest index scores, exactly so many even where
    scores tie, so that a dead indexer, whose scores are all zero, cannot pass for dense attention."""
    scores = compiled_index_scores(take(iq, rows), ik, take(iw, rows))
    scores = scores.masked_fill_(~allowed_keys(document, rows), float("-inf"))
    values, keys = scores.topk(min(topk, scores.shape[-1]), sorted=False)
    return keys, values > float("-inf")


def sparse(q, latent, k_rope, w_key, w_value, index, batch, rows, scale, topk):
    """q [b, l, h, 192], latent [b, l, 512], k_rope [b, l, 64], w_key and w_value [h, 128, 512], rows [b, n]
    -> [b, n, h, 128]."""
    b, l = latent.shape[:2]
    kv = torch.cat((latent, k_rope), -1).flatten(0, 1)
    offsets = (torch.arange(b, device=rows.device) * l)[:, None, None]
    pieces = []
    for part in rows.split(ROWS_AT_ONCE, 1):
        keys, valid = choose(*index, batch.document, part, topk)
        q_part = take(q, part)
        absorbed = torch.cat((torch.einsum("bnhd,hdr->bnhr", q_part[..., :128], w_key), q_part[..., 128:]), -1)
        out = SparseAttend.apply(absorbed.flatten(0, 1), kv, (keys + offsets).flatten(0, 1), valid.flatten(0, 1), scale)
        pieces.append(torch.einsum("bnhr,hdr->bnhd", out.unflatten(0, part.shape), w_value))
    return torch.cat(pieces, 1)


def index_loss(q, k, iq, ik, iw, batch, rows, scale, topk, wants_health):
    """(KL summed over `rows`, health). health: [share of the earlier keys' scores that are not zero, share of the dense
    attention's mass that the topk highest scores hold, over rows with more than topk keys], or None."""
    allowed = allowed_keys(batch.document, rows)
    with torch.no_grad():
        scores = torch.einsum("bqhd,bkhd->bhqk", take(q, rows), k).float() * scale
        target = scores.masked_fill_(~allowed[:, None], float("-inf")).softmax(-1).mean(1)
    index = compiled_index_scores(take(iq, rows), ik, take(iw, rows))
    log_index = index.masked_fill(~allowed, float("-inf")).log_softmax(-1).masked_fill(~allowed, 0)
    kl = (torch.xlogy(target, target) - target * log_index).sum()
    if not wants_health:
        return kl, None
    with torch.no_grad():
        alive = ((index != 0) & allowed).sum() / allowed.sum().clamp_min(1)
        keys = index.masked_fill(~allowed, float("-inf")).topk(min(topk, index.shape[-1])).indices
        far = allowed.sum(-1) > topk
        mass = (target.gather(-1, keys).sum(-1) * far).sum() / far.sum().clamp_min(1)
    return kl, torch.stack((alive, mass))
