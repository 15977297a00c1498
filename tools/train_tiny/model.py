"""DeepSeek-V3.2 in PyTorch, for training: MLA, lightning indexer, sparse attention, MoE, MTP.

Which rows attend sparsely and which teach the indexer stands in the batch (attention.py has the arithmetic). All rows are
[batch, length] with several documents packed in a row; positions restart in each document.
"""

import torch
import torch.nn.functional as F
from torch import nn

import attention
from config import Config


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
    """Packed rows. tokens, positions, document [batch, length]; cu_lengths of all documents in row order.

    sparse_rows [batch, n]: the rows that attend to index_topk keys alone, in ascending order where they are all; None: none.
    index_rows [batch, m]: the rows that teach the indexer. wants_health: whether they also tell how well it does.
    """

    def __init__(self, tokens, positions, document, frequencies, cu_lengths=None, length_max=None, sparse_rows=None,
                 index_rows=None, wants_health=False):
        self.tokens, self.positions, self.document = tokens, positions, document
        self.cu_lengths, self.length_max = cu_lengths, length_max
        self.sparse_rows, self.index_rows, self.wants_health = sparse_rows, index_rows, wants_health
        angle = positions.float()[..., None] * frequencies
        self.cos, self.sin = angle.cos()[:, :, None], angle.sin()[:, :, None]

    def all_sparse(self):
        """Every row sparse, as it is served."""
        self.sparse_rows = torch.arange(self.tokens.shape[1], device=self.tokens.device).expand(self.tokens.shape)
        return self


class Indexer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.wq_b = linear(c.q_lora_rank, c.index_n_heads * c.index_head_dim)
        self.wk = linear(c.hidden_size, c.index_head_dim)
        self.k_norm_weight = nn.Parameter(torch.ones(c.index_head_dim))
        self.k_norm_bias = nn.Parameter(torch.zeros(c.index_head_dim))
        self.weights_proj = linear(c.hidden_size, c.index_n_heads)

    def forward(self, x, qr, cos, sin):
        """q [b, l, heads, 128], k [b, l, 128], w [b, l, heads] FP32 with every constant folded in."""
        c = self.c
        q = F.linear(qr, self.wq_b.to(qr.dtype)).unflatten(-1, (c.index_n_heads, c.index_head_dim))
        k = F.linear(x, self.wk.to(x.dtype))
        k = F.layer_norm(k.float(), (c.index_head_dim,), self.k_norm_weight, self.k_norm_bias, 1e-6).to(x.dtype)
        q = torch.cat((rope_half_split(q[..., :64], cos, sin), q[..., 64:]), -1)
        k = torch.cat((rope_half_split(k[..., :64], cos[:, :, 0], sin[:, :, 0]), k[..., 64:]), -1)
        w = F.linear(x.float(), self.weights_proj) * (c.index_n_heads**-0.5 * c.index_head_dim**-0.5)
        return q, k, w


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

    def project(self, x, cos, sin):
        """q, k [b, l, h, 192], v [b, l, h, 128], latent [b, l, 512], k_rope [b, l, 64], and the indexer's q, k and w."""
        c, h = self.c, self.c.num_attention_heads
        qr = self.q_a_layernorm(F.linear(x, self.q_a_proj.to(x.dtype)))
        q = F.linear(qr, self.q_b_proj.to(x.dtype)).unflatten(-1, (h, c.qk_head_dim))
        q = torch.cat((q[..., :128], rope_interleaved(q[..., 128:], cos, sin)), -1)
        kva = F.linear(x, self.kv_a_proj_with_mqa.to(x.dtype))
        latent = self.kv_a_layernorm(kva[..., :512])
        k_rope = rope_interleaved(kva[..., None, 512:], cos, sin)
        kv = F.linear(latent, self.kv_b_proj.to(x.dtype)).unflatten(-1, (h, 256))
        k = torch.cat((kv[..., :128], k_rope.expand(-1, -1, h, -1)), -1)
        return (q, k, kv[..., 128:], latent, k_rope[:, :, 0]) + self.indexer(x.detach(), qr.detach(), cos, sin)

    def attend(self, projected, batch):
        """(heads' outputs [b, l, h, 128], KL sum of the indexer, its health or None)."""
        q, k, v, latent, k_rope, *index = projected
        scale, topk = self.c.softmax_scale, self.c.index_topk
        kl, health = q.new_zeros((), dtype=torch.float32), None
        if batch.index_rows is not None:
            kl, health = attention.index_loss(q.detach(), k.detach(), *index, batch, batch.index_rows, scale, topk,
                                              batch.wants_health)
        rows = batch.sparse_rows
        if rows is None:
            return attention.dense(q, k, v, batch, scale), kl, health
        w = self.kv_b_proj.to(q.dtype).unflatten(0, (self.c.num_attention_heads, 256))
        out = attention.sparse(q, latent, k_rope, w[:, :128], w[:, 128:], index, batch, rows, scale, topk)
        if rows.shape[1] < q.shape[1]:
            out = attention.dense(q, k, v, batch, scale).scatter(1, rows[..., None, None].expand_as(out), out)
        return out, kl, health


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

    def before(self, x, cos, sin):
        return self.self_attn.project(self.input_layernorm(x), cos, sin)

    def after(self, x, out):
        x = x + F.linear(out.flatten(-2), self.self_attn.o_proj.to(x.dtype))
        return x + self.mlp(self.post_attention_layernorm(x))

    def forward(self, x, batch):
        """(x after the block, KL sum of the indexer, its health or None)."""
        out, kl, health = self.self_attn.attend(self.before(x, batch.cos, batch.sin), batch)
        return self.after(x, out), kl, health


class MtpLayer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.enorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.hnorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.eh_proj = linear(2 * c.hidden_size, c.hidden_size)
        self.block = Block(c, is_dense=False)
        self.shared_head_norm = RmsNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, embedding, hidden, batch):
        """Row i: the embedding of token i + 1 and the hidden state of position i. Normed output, KL, health."""
        z = F.linear(torch.cat((self.enorm(embedding), self.hnorm(hidden)), -1), self.eh_proj.to(hidden.dtype))
        out, kl, health = self.block(z, batch)
        return self.shared_head_norm(out), kl, health


def shift(x, by):
    """Row i becomes row i + by; the last rows repeat (their loss weight is zero)."""
    return torch.cat((x[:, by:], x[:, -1:].expand(-1, by, *x.shape[2:])), 1)


class TinyModel(nn.Module):
    def __init__(self, c: Config, dtype=torch.bfloat16):
        """dtype: of the activations; float32 compares with the NumPy reference."""
        super().__init__()
        self.c, self.dtype = c, dtype
        self.embed_tokens = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.7)
        self.lm_head = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.01)
        self.layers = nn.ModuleList(Block(c, i < c.first_k_dense_replace) for i in range(c.num_hidden_layers))
        self.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.mtp = MtpLayer(c)

    def logits(self, hidden):
        return F.linear(hidden, self.lm_head.to(hidden.dtype)).float()

    def forward(self, batch, mtp_passes=1):
        """(hidden after the final norm, [MTP hidden of each pass], KL sum, [health of each layer's indexer, MTP last]).
        MTP pass j, row i predicts token i + 2 + j."""
        embedding = F.embedding(batch.tokens, self.embed_tokens).to(self.dtype)
        x, kl, healths = embedding, 0, []
        for layer in self.layers:
            x, layer_kl, health = layer(x, batch)
            kl = kl + layer_kl
            healths.append(health)
        hidden = self.norm(x)
        drafts, previous = [], hidden
        for j in range(mtp_passes):
            # Pass j works at position i + j: tokens move left once more, the hidden state is the pass before at i. All
            # positions move alike, so rotary angles, which count only as differences, stay as they are.
            previous, layer_kl, health = self.mtp(shift(embedding, j + 1), previous, batch)
            if j == 0:
                kl = kl + layer_kl
                healths.append(health)
            drafts.append(previous)
        return hidden, drafts, kl, healths
