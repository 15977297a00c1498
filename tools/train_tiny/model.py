"""DeepSeek-V3.2 in PyTorch, for training: un-absorbed MLA, lightning indexer, sparse attention, MoE, MTP.

Attention runs in one of three modes:
  dense    causal within each document, by the flash kernel on packed rows; the indexer does not run
  warmup   dense, and the indexer learns by KL to the head-mean of the attention; its inputs are detached
  sparse   each row attends to the index_topk keys its indexer scores highest; KL on that set
All rows are [batch, length] with several documents packed in a row; positions restart in each document.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from config import Config

QUERY_CHUNK = 1024  # rows of the explicit attention scores held at once


def linear(in_dim, out_dim, zero=False):
    weight = torch.zeros(out_dim, in_dim) if zero else torch.randn(out_dim, in_dim) * in_dim**-0.5
    return nn.Parameter(weight)


class RmsNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rope_interleaved(x, cos, sin):
    """x [..., heads, 64], cos and sin [..., 1, 32]."""
    y = x.float().unflatten(-1, (32, 2))
    a, b = y[..., 0], y[..., 1]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def rope_half_split(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


class Batch:
    """Packed rows. tokens, positions, document [batch, length]; cu_lengths of all documents in row order."""

    def __init__(self, tokens, positions, document, cu_lengths, length_max, frequencies):
        self.tokens, self.positions, self.document = tokens, positions, document
        self.cu_lengths, self.length_max = cu_lengths, length_max
        angle = positions.float()[..., None] * frequencies
        self.cos, self.sin = angle.cos()[:, :, None], angle.sin()[:, :, None]


def flash(q, k, v, batch, scale):
    """q, k [b, l, h, 192], v [b, l, h, 128]; causal within each document."""
    b, l, h, d = q.shape
    v = F.pad(v, (0, d - v.shape[-1]))
    out = torch.ops.aten._flash_attention_forward(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), batch.cu_lengths, batch.cu_lengths, batch.length_max,
        batch.length_max, 0.0, True, False, scale=scale)[0]
    return out.view(b, l, h, d)[..., :128]


class Indexer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.wq_b = linear(c.q_lora_rank, c.index_n_heads * c.index_head_dim)
        self.wk = linear(c.hidden_size, c.index_head_dim)
        self.k_norm_weight = nn.Parameter(torch.ones(c.index_head_dim))
        self.k_norm_bias = nn.Parameter(torch.zeros(c.index_head_dim))
        self.weights_proj = linear(c.hidden_size, c.index_n_heads)

    def forward(self, x, qr, batch):
        """q [b, l, heads, 128], k [b, l, 128], w [b, l, heads] FP32 with every constant folded in."""
        c = self.c
        q = F.linear(qr, self.wq_b.to(qr.dtype)).unflatten(-1, (c.index_n_heads, c.index_head_dim))
        k = F.linear(x, self.wk.to(x.dtype))
        k = F.layer_norm(k.float(), (c.index_head_dim,), self.k_norm_weight, self.k_norm_bias, 1e-6).to(x.dtype)
        q = torch.cat((rope_half_split(q[..., :64], batch.cos, batch.sin), q[..., 64:]), -1)
        k = torch.cat((rope_half_split(k[..., :64], batch.cos[:, :, 0], batch.sin[:, :, 0]), k[..., 64:]), -1)
        w = F.linear(x.float(), self.weights_proj) * (c.index_n_heads**-0.5 * c.index_head_dim**-0.5)
        return q, k, w


def index_scores(q, k, w):
    """[b, chunk, keys] FP32."""
    dots = torch.einsum("bqhd,bkd->bhqk", q, k)
    return torch.einsum("bhqk,bqh->bqk", F.relu(dots), w.to(dots.dtype)).float()


def masked_attention(q, k, v, iq, ik, iw, document_q, document_k, row_begin, scale, topk):
    """One chunk of query rows against all earlier keys: (out [b, n, h, 128], summed KL, rows that count)."""
    n, m = q.shape[1], k.shape[1]
    rows = torch.arange(row_begin, row_begin + n, device=q.device)[:, None]
    columns = torch.arange(m, device=q.device)[None, :]
    allowed = (columns <= rows) & (document_q[:, :, None] == document_k[:, None, :])
    index = index_scores(iq, ik, iw).masked_fill(~allowed, float("-inf"))
    if topk is not None and m > topk:
        # Exactly topk, ties to the lower position as the engine does: a threshold alone would keep every tie, and an
        # indexer whose scores are all zero would go unnoticed as dense attention.
        kept = torch.sort(index.detach(), dim=-1, descending=True, stable=True).indices[..., :topk]
        allowed = allowed & torch.zeros_like(allowed).scatter_(-1, kept, True)
        index = index.masked_fill(~allowed, float("-inf"))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * scale
    probabilities = scores.masked_fill(~allowed[:, None], float("-inf")).softmax(-1)
    out = torch.einsum("bhqk,bkhd->bqhd", probabilities.to(v.dtype), v)
    target = probabilities.detach().mean(1)
    log_index = index.log_softmax(-1).masked_fill(~allowed, 0)
    kl = (target * (torch.log(target.clamp_min(1e-20)) - log_index)).masked_fill(~allowed, 0).sum()
    return out, kl


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        h = c.num_attention_heads
        self.q_a_proj = linear(c.hidden_size, c.q_lora_rank)
        self.q_a_layernorm = RmsNorm(c.q_lora_rank, c.rms_norm_eps)
        self.q_b_proj = linear(c.q_lora_rank, h * c.qk_head_dim)
        self.kv_a_proj_with_mqa = linear(c.hidden_size, c.kv_lora_rank + c.qk_rope_head_dim)
        self.kv_a_layernorm = RmsNorm(c.kv_lora_rank, c.rms_norm_eps)
        self.kv_b_proj = linear(c.kv_lora_rank, h * (c.qk_nope_head_dim + c.v_head_dim))
        self.o_proj = linear(h * c.v_head_dim, c.hidden_size, zero=True)
        self.indexer = Indexer(c)

    def forward(self, x, batch, mode):
        """(output, KL sum of the indexer: zero in dense mode)."""
        c, h = self.c, self.c.num_attention_heads
        qr = self.q_a_layernorm(F.linear(x, self.q_a_proj.to(x.dtype)))
        q = F.linear(qr, self.q_b_proj.to(x.dtype)).unflatten(-1, (h, c.qk_head_dim))
        q = torch.cat((q[..., :128], rope_interleaved(q[..., 128:], batch.cos, batch.sin)), -1)
        kva = F.linear(x, self.kv_a_proj_with_mqa.to(x.dtype))
        latent = self.kv_a_layernorm(kva[..., :512])
        k_rope = rope_interleaved(kva[..., None, 512:], batch.cos, batch.sin)
        kv = F.linear(latent, self.kv_b_proj.to(x.dtype)).unflatten(-1, (h, 256))
        k = torch.cat((kv[..., :128], k_rope.expand(-1, -1, h, -1)), -1)
        v = kv[..., 128:]
        kl = x.new_zeros((), dtype=torch.float32)
        if mode == "dense":
            out = flash(q, k, v, batch, c.softmax_scale)
        else:
            iq, ik, iw = self.indexer(x.detach(), qr.detach(), batch)
            topk = c.index_topk if mode == "sparse" else None
            pieces = []
            length = x.shape[1]
            for begin in range(0, length, QUERY_CHUNK):
                end = min(begin + QUERY_CHUNK, length)
                piece, piece_kl = checkpoint(
                    masked_attention, q[:, begin:end], k[:, :end], v[:, :end], iq[:, begin:end], ik[:, :end],
                    iw[:, begin:end], batch.document[:, begin:end], batch.document[:, :end], begin, c.softmax_scale, topk,
                    use_reentrant=False)
                pieces.append(piece)
                kl = kl + piece_kl
            out = torch.cat(pieces, 1)
        return F.linear(out.flatten(-2), self.o_proj.to(x.dtype)), kl


class Mlp(nn.Module):
    def __init__(self, c: Config, width):
        super().__init__()
        self.gate_proj = linear(c.hidden_size, width)
        self.up_proj = linear(c.hidden_size, width)
        self.down_proj = linear(width, c.hidden_size, zero=True)

    def forward(self, x):
        y = F.silu(F.linear(x, self.gate_proj.to(x.dtype)).float()) * F.linear(x, self.up_proj.to(x.dtype)).float()
        return F.linear(y.to(x.dtype), self.down_proj.to(x.dtype))


class Moe(nn.Module):
    """All experts are computed and the unchosen ones weighted zero: cheaper than dispatch at this size."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        e, w, d = c.n_routed_experts, c.moe_intermediate_size, c.hidden_size
        self.gate = linear(d, e)
        self.register_buffer("bias", torch.zeros(e))
        self.gate_proj = nn.Parameter(torch.randn(e, w, d) * d**-0.5)
        self.up_proj = nn.Parameter(torch.randn(e, w, d) * d**-0.5)
        self.down_proj = nn.Parameter(torch.zeros(e, d, w))
        self.shared = Mlp(c, w * c.n_shared_experts)
        self.register_buffer("load", torch.zeros(e), persistent=False)

    def route(self, x):
        """Weights [.., experts], zero where not chosen: the noaux_tc rules, ties to the lower id."""
        c = self.c
        p = torch.sigmoid(F.linear(x.float(), self.gate))
        b = (p + self.bias).detach()
        group = b.unflatten(-1, (c.n_group, -1))
        group_score = group.topk(2, dim=-1).values.sum(-1)

        def kept(score, count):
            # A place is kept where fewer than `count` others beat it: a larger score, or an equal one before it.
            n = score.shape[-1]
            before = torch.arange(n, device=score.device)[None, :] < torch.arange(n, device=score.device)[:, None]
            beats = (score[..., None, :] > score[..., :, None]) | ((score[..., None, :] == score[..., :, None]) & before)
            return beats.sum(-1) < count

        group_kept = kept(group_score, c.topk_group)
        b = group.masked_fill(~group_kept[..., None], float("-inf")).flatten(-2)
        chosen = kept(b, c.num_experts_per_tok) & torch.isfinite(b)
        weight = p * chosen
        return weight / (weight.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor, chosen

    def forward(self, x):
        weight, chosen = self.route(x)
        if self.training:
            self.load += chosen.detach().flatten(0, -2).float().sum(0)
        e, w, d = self.gate_proj.shape
        gate = F.linear(x, self.gate_proj.to(x.dtype).reshape(e * w, d))
        up = F.linear(x, self.up_proj.to(x.dtype).reshape(e * w, d))
        y = (F.silu(gate.float()) * up.float()).to(x.dtype).unflatten(-1, (e, w)) * weight[..., None].to(x.dtype)
        down = self.down_proj.to(x.dtype).permute(1, 0, 2).reshape(d, e * w)
        return F.linear(y.flatten(-2), down) + self.shared(x)


class Block(nn.Module):
    def __init__(self, c: Config, is_dense):
        super().__init__()
        self.input_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = Mlp(c, c.intermediate_size) if is_dense else Moe(c)

    def forward(self, x, batch, mode):
        out, kl = self.self_attn(self.input_layernorm(x), batch, mode)
        x = x + out
        return x + self.mlp(self.post_attention_layernorm(x)), kl


class MtpLayer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.enorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.hnorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.eh_proj = linear(2 * c.hidden_size, c.hidden_size)
        self.block = Block(c, is_dense=False)
        self.shared_head_norm = RmsNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, embedding, hidden, batch, mode):
        """Row i: the embedding of token i + 1 and the hidden state of position i. Normed output, KL."""
        z = F.linear(torch.cat((self.enorm(embedding), self.hnorm(hidden)), -1), self.eh_proj.to(hidden.dtype))
        out, kl = self.block(z, batch, mode)
        return self.shared_head_norm(out), kl


def shift(x, by):
    """Row i becomes row i + by; the last rows repeat (their loss weight is zero)."""
    return torch.cat((x[:, by:], x[:, -1:].expand(-1, by, *x.shape[2:])), 1)


class TinyModel(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.7)
        self.lm_head = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.01)
        self.layers = nn.ModuleList(Block(c, i < c.first_k_dense_replace) for i in range(c.num_hidden_layers))
        self.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.mtp = MtpLayer(c)

    def logits(self, hidden):
        return F.linear(hidden, self.lm_head.to(hidden.dtype)).float()

    def forward(self, batch, mode, mtp_passes=1):
        """(hidden after the final norm, [MTP hidden of each pass], KL sum). MTP pass j, row i predicts token i + 1 + j."""
        embedding = F.embedding(batch.tokens, self.embed_tokens).to(torch.bfloat16)
        x, kl = embedding, 0
        for layer in self.layers:
            x, layer_kl = layer(x, batch, mode)
            kl = kl + layer_kl
        hidden = self.norm(x)
        drafts, previous = [], hidden
        for j in range(mtp_passes):
            # Pass j works at position i + j: tokens move left once more, the hidden state is the pass before at i. All
            # positions move alike, so rotary angles, which count only as differences, stay as they are.
            previous, layer_kl = self.mtp(shift(embedding, j + 1), previous, batch, mode)
            if j == 0:
                kl = kl + layer_kl
            drafts.append(previous)
        return hidden, drafts, kl

