"""DeepSeek-V3.2 over a whole sequence: dense masked attention, no cache, no chunks, no batch.

Every stage can be captured by name (README.md lists them) for golden tests. Tested by model_test.py.
"""

from dataclasses import dataclass, field

import numpy as np

from tools.reference import dtypes, ops


FP32_ERROR = 2e-7
# Of Hopper's FP8 instructions, which keep about 14 bits of a sum of 128 products (docs/kernels/linear.md).
FP8_ERROR = 2.0**-13


def _row_size(x):
    return np.sqrt(np.mean(x * x, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Switches:
    """What of the deployed numerics is emulated. All off: the formulas in float64."""

    fp8_linear: bool = True
    fp8_latent: bool = True
    fp8_indexer: bool = True
    bf16_rounding: bool = True
    index_topk_pattern: str = ""  # Index Cache: F or S for each main layer; empty: every layer chooses for itself
    dense_attention_max_context: int = 0  # rows up to it attend to their whole context, beyond index_topk, too
    absorbed: bool = True  # attention in the 576-wide form; False: keys and values expanded per head


@dataclass
class Output:
    """Of one pass over T tokens; margins are [layers, T] with the MTP layer last."""

    logits: np.ndarray
    final_hidden: np.ndarray
    index_margin: list = field(default_factory=list)
    router_margin: list = field(default_factory=list)
    selected: np.ndarray | None = None  # of the layer that chose last


class Model:
    def __init__(self, checkpoint, switches=Switches(), noise=None, noise_size=FP32_ERROR):
        """noise: a NumPy generator; every value is moved by about noise_size before it is rounded to BF16.

        Two implementations that sum in another order differ that much. What noise does to the logits is therefore
        the least tolerance that a comparison needs.
        """
        self.checkpoint = checkpoint
        self.config = checkpoint.config
        self.switches = switches
        self.bf16 = dtypes.round_bf16 if switches.bf16_rounding else ops.identity
        if noise is not None:
            self.bf16 = lambda x: dtypes.round_bf16(x + noise_size * _row_size(x) * noise.normal(size=x.shape))
        c = self.config
        self._frequencies = ops.rope_frequencies(
            c.qk_rope_head_dim,
            c.rope_theta,
            c.rope_factor,
            c.original_max_position_embeddings,
            c.beta_fast,
            c.beta_slow,
        )
        head_dim = c.qk_nope_head_dim + c.qk_rope_head_dim
        self._softmax_scale = ops.softmax_scale(head_dim, c.rope_factor, c.mscale_all_dim)

    def forward(self, tokens, capture=lambda stage, value: None, layers=None):
        """The main model over tokens at positions 0..T-1; layers: ids of the layers to run, all where None."""
        layers = range(self.config.num_hidden_layers) if layers is None else layers
        out = Output(None, None)
        x, residual = self.checkpoint.values("model.embed_tokens.weight")[np.asarray(tokens)], None
        for layer in layers:
            x, residual = self._layer(layer, x, residual, out, capture)
        out.final_hidden, _ = ops.add_rms_norm(x, residual, self._weight("model.norm"), self.bf16)
        capture("final_hidden", out.final_hidden)
        out.logits = out.final_hidden @ self.checkpoint.values("lm_head.weight").T
        return out

    def forward_mtp(self, final_hidden, next_tokens, out, capture=lambda stage, value: None):
        """Logits [T, vocab] of the MTP layer: row i holds (hidden of position i, token of position i + 1)."""
        layer = self.config.num_hidden_layers
        prefix = f"model.layers.{layer}."
        embedding = self.checkpoint.values("model.embed_tokens.weight")[np.asarray(next_tokens)]
        e = ops.rms_norm(embedding, self._weight(prefix + "enorm"), self.bf16)
        n = ops.rms_norm(final_hidden, self._weight(prefix + "hnorm"), self.bf16)
        z = self._linear(prefix + "eh_proj", np.concatenate([e, n], axis=-1))
        x, residual = self._layer(layer, z, None, out, capture)
        g, _ = ops.add_rms_norm(x, residual, self._weight(prefix + "shared_head.norm"), self.bf16)
        return g @ self.checkpoint.values("lm_head.weight").T

    def _weight(self, name):
        return self.checkpoint.values(name + ".weight")

    def _linear(self, name, x):
        w = self._weight(name)
        if self.switches.fp8_linear and self.checkpoint.is_fp8(name + ".weight"):
            x = dtypes.dequantise(*dtypes.quantise(x, self.config.scale_format))
        return self.bf16(x @ w.T)

    def _layer(self, layer, x, residual, out, capture):
        c = self.config
        prefix = f"model.layers.{layer}."

        def stage(name, value):
            capture(f"L{layer}.{name}", value)

        norm = self._weight(prefix + "input_layernorm")
        if residual is None:
            a, residual = ops.rms_norm(x, norm, self.bf16), x
        else:
            a, residual = ops.add_rms_norm(x, residual, norm, self.bf16)
        stage("input", a)
        x = self._attention(layer, prefix + "self_attn.", a, out, stage)
        stage("attention", x)
        f, residual = ops.add_rms_norm(x, residual, self._weight(prefix + "post_attention_layernorm"), self.bf16)
        stage("ffn_input", f)
        stage("residual", residual)
        if layer < c.first_k_dense_replace:
            x = self._mlp(prefix + "mlp.", f)
            out.router_margin.append(np.full(len(f), np.inf))
        else:
            x = self._moe(prefix + "mlp.", f, out, stage)
        stage("ffn", x)
        return x, residual

    def _attention(self, layer, prefix, a, out, stage):
        c = self.config
        tokens, heads = len(a), c.num_attention_heads
        cos, sin = ops.rope_table(np.arange(tokens), self._frequencies)

        qr = ops.rms_norm(self._linear(prefix + "q_a_proj", a), self._weight(prefix + "q_a_layernorm"), self.bf16)
        q = self._linear(prefix + "q_b_proj", qr).reshape(tokens, heads, -1)
        q_nope, q_rope = q[..., : c.qk_nope_head_dim], q[..., c.qk_nope_head_dim :]
        q_rope = ops.rope_interleaved(q_rope, cos, sin, self.bf16)
        kva = self._linear(prefix + "kv_a_proj_with_mqa", a)
        latent = ops.rms_norm(kva[:, : c.kv_lora_rank], self._weight(prefix + "kv_a_layernorm"), self.bf16)
        k_rope = ops.rope_interleaved(kva[:, c.kv_lora_rank :], cos, sin, self.bf16)
        stage("qr", qr)
        stage("q", np.concatenate([q_nope, q_rope], axis=-1))
        stage("c", latent)
        stage("k_rope", k_rope)
        if self.switches.fp8_latent:
            latent = self.bf16(dtypes.dequantise(*dtypes.quantise(latent)))

        if self.switches.index_topk_pattern[layer : layer + 1] == "S":
            selected = out.selected
            out.index_margin.append(out.index_margin[-1])
        else:
            selected = out.selected = self._index(prefix + "indexer.", a, qr, cos, sin, out, stage)
        allowed = np.zeros((tokens, tokens), bool)
        for t, row in enumerate(selected):
            allowed[t, row[row >= 0]] = True

        kv_b = self.bf16(self._weight(prefix + "kv_b_proj")).reshape(heads, -1, c.kv_lora_rank)
        w_uk, w_uv = kv_b[:, : c.qk_nope_head_dim], kv_b[:, c.qk_nope_head_dim :]
        if self.switches.absorbed:
            q_latent = self.bf16(np.einsum("thd,hdc->thc", q_nope, w_uk, optimize=True))
            query = np.concatenate([q_latent, q_rope], axis=-1)
            key = np.concatenate([latent, k_rope], axis=-1)[:, None]
            o_latent = self.bf16(
                ops.masked_attention(query, key, latent[:, None], allowed, self._softmax_scale),
            )
            o = self.bf16(np.einsum("thc,hdc->thd", o_latent, w_uv, optimize=True))
        else:
            k_nope = self.bf16(np.einsum("sc,hdc->shd", latent, w_uk, optimize=True))
            value = self.bf16(np.einsum("sc,hdc->shd", latent, w_uv, optimize=True))
            query = np.concatenate([q_nope, q_rope], axis=-1)
            key = np.concatenate([k_nope, np.repeat(k_rope[:, None], heads, axis=1)], axis=-1)
            o = self.bf16(ops.masked_attention(query, key, value, allowed, self._softmax_scale))
        return self._linear(prefix + "o_proj", o.reshape(tokens, -1))

    def _index(self, prefix, a, qr, cos, sin, out, stage):
        """Positions that each token attends to: int32 [T, longest list], ascending, -1 at the tail."""
        c = self.config
        tokens, rotary = len(a), c.qk_rope_head_dim
        q = self._linear(prefix + "wq_b", qr).reshape(tokens, c.index_n_heads, c.index_head_dim)
        k = ops.layer_norm(
            self._linear(prefix + "wk", a),
            self._weight(prefix + "k_norm"),
            self.checkpoint.values(prefix + "k_norm.bias"),
            self.bf16,
        )
        q, k = (
            np.concatenate(
                [ops.rope_half_split(v[..., :rotary], cos, sin, self.bf16), v[..., rotary:]],
                axis=-1,
            )
            for v in (q, k)
        )
        w = (a @ self._weight(prefix + "weights_proj").T) * c.index_n_heads**-0.5 * c.index_head_dim**-0.5
        k_scale = np.ones(tokens)
        if self.switches.fp8_indexer:
            q, q_scale = dtypes.quantise(self.bf16(ops.hadamard(q)))
            k, k_scale = dtypes.quantise(self.bf16(ops.hadamard(k)))
            k_scale = k_scale[:, 0].astype(np.float64)
            w = w * q_scale[..., 0]
            stage("index_q", q)
            stage("index_q_scale", q_scale[..., 0])
            stage("index_k", k)
            stage("index_k_scale", k_scale)
        logits = ops.index_logits(q, w, k, k_scale)
        if self.switches.bf16_rounding:
            logits = logits.astype(np.float32).astype(np.float64)
        logits = np.where(np.tri(tokens, dtype=bool), logits, -np.inf)
        num_keys = np.arange(1, tokens + 1)
        selected = ops.top_k(logits, num_keys, c.index_topk)
        margin = ops.top_k_margin(logits, num_keys, c.index_topk)
        num_dense = min(tokens, self.switches.dense_attention_max_context)
        if num_dense > c.index_topk:
            chosen, selected = selected, np.full((tokens, num_dense), -1, np.int32)
            selected[:, : c.index_topk] = chosen
            everything = np.arange(num_dense)
            selected[:num_dense] = np.where(everything <= everything[:, None], everything, -1)
            margin[:num_dense] = np.inf  # nothing hangs on these rows' index logits
        out.index_margin.append(margin)
        stage("index_w", w)
        stage("index_logits", logits)
        stage("selected", selected)
        return selected

    def _mlp(self, prefix, x):
        gate, up = self._linear(prefix + "gate_proj", x), self._linear(prefix + "up_proj", x)
        return self._linear(prefix + "down_proj", ops.swiglu(gate, up, self.bf16))

    def _moe(self, prefix, x, out, stage):
        c = self.config
        logits = x @ self._weight(prefix + "gate").T
        if self.switches.bf16_rounding:
            logits = logits.astype(np.float32).astype(np.float64)
        name = prefix + "gate.e_score_correction_bias"
        ids, weights, margin = ops.moe_router(
            logits,
            self.checkpoint.values(name) if self.checkpoint.has(name) else None,
            c.num_experts_per_tok,
            c.n_group,
            c.topk_group,
            c.norm_topk_prob,
            c.routed_scaling_factor,
        )
        out.router_margin.append(margin)
        stage("router_ids", ids)
        stage("router_weights", weights)
        expert_out = np.zeros((*ids.shape, x.shape[1]))
        for expert in range(c.n_routed_experts):
            rows, slots = np.nonzero(ids == expert)
            if len(rows):
                expert_out[rows, slots] = self._mlp(f"{prefix}experts.{expert}.", x[rows])
        return ops.moe_combine(expert_out, weights, self._mlp(prefix + "shared_experts.", x), self.bf16)
