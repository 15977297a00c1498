#!/usr/bin/env python3
"""PyTorch on the CPU running checkpoints/tandem-tiny whole, as a peer of the cluster on the same machine.

    python tools/bench/whole_model_peer.py [--threads 2] [--runs 3]      # a Python that has torch and safetensors

Prints tokens a second for a prompt of 4,096 tokens (sparse attention as served, and dense by PyTorch's own kernel) and for
decode steps of 1, 8 and 32 sequences from 16 tokens to 216, each with a cache of latents and index keys. Weights and
activations are BF16 through oneDNN; experts are dispatched, not computed densely; the best of the runs counts. No server,
no sampler but argmax, no transfer: what is left out is in PyTorch's favour.
"""

import argparse
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "train_tiny"))

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(0)

import attention  # noqa: E402
from config import Config  # noqa: E402
from load import load_checkpoint  # noqa: E402
from model import Batch, Moe, TinyModel  # noqa: E402

PROMPT, DECODE_FROM, DECODE_TO = 4096, 16, 216


def dispatch(self, x):
    """In place of Moe.forward: each expert sees its own rows alone."""
    weight, chosen = self.route(x)
    flat, weight, chosen = x.flatten(0, -2), weight.flatten(0, -2), chosen.flatten(0, -2)
    out = torch.zeros(flat.shape, dtype=torch.float32)
    for expert in range(chosen.shape[1]):
        rows = chosen[:, expert].nonzero()[:, 0]
        if len(rows):
            a = flat[rows]
            y = F.silu(F.linear(a, self.gate_proj[expert])) * F.linear(a, self.up_proj[expert])
            out.index_add_(0, rows, F.linear(y, self.down_proj[expert]).float() * weight[rows, expert, None])
    return out.to(x.dtype).view(x.shape) + self.shared(x)


def dense_attention(q, k, v, batch, scale):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale).transpose(1, 2)


def load(checkpoint):
    model = TinyModel(Config())
    load_checkpoint(model, checkpoint)
    for name, p in model.named_parameters():
        if p.ndim >= 2 and not name.endswith(("mlp.gate", "weights_proj")):
            p.data = p.data.to(torch.bfloat16)
    return model.eval()


class Decoder:
    """`batch` sequences at one position, caches [batch, length, ..] of each layer."""

    def __init__(self, model, batch, length):
        self.model, self.length = model, 0
        self.kv = [torch.zeros(batch, length, 576, dtype=torch.bfloat16) for _ in model.layers]
        self.index = [torch.zeros(batch, length, 128, dtype=torch.bfloat16) for _ in model.layers]
        self.frequencies = torch.tensor(model.c.rope_frequencies())

    def step(self, tokens):
        model, c, at = self.model, self.model.c, self.length
        self.length += 1
        angle = torch.full((len(tokens), 1, 1), float(at)) * self.frequencies
        cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
        x = F.embedding(tokens[:, None], model.embed_tokens)
        for layer, kv, index in zip(model.layers, self.kv, self.index):
            q, _, _, latent, k_rope, iq, ik, iw = layer.before(x, cos, sin)
            kv[:, at:at + 1], index[:, at:at + 1] = torch.cat((latent, k_rope), -1), ik
            seen = kv[:, :at + 1]
            if at + 1 > c.index_topk:
                scores = attention.index_scores(iq, index[:, :at + 1], iw)[:, 0]
                keys = scores.topk(c.index_topk, sorted=False).indices
                seen = seen.gather(1, keys[..., None].expand(-1, -1, 576))
            w = layer.self_attn.kv_b_proj.unflatten(0, (c.num_attention_heads, 256))
            absorbed = torch.cat((torch.einsum("bhd,hdr->bhr", q[:, 0, :, :128], w[:, :128]), q[:, 0, :, 128:]), -1)
            p = ((absorbed @ seen.mT).float() * c.softmax_scale).softmax(-1).to(x.dtype)
            out = torch.einsum("bhr,hdr->bhd", p @ seen[..., :512], w[:, 128:])
            x = layer.after(x, out[:, None])
        return model.logits(model.norm(x))[:, 0].argmax(-1)


def best(work, runs):
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=str(ROOT / "checkpoints" / "tandem-tiny"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    Moe.forward = dispatch
    attention.dense = dense_attention
    model = load(arguments.checkpoint)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads")
    frequencies = torch.tensor(model.c.rope_frequencies())
    ids = torch.randint(300, 2000, (1, PROMPT), generator=torch.Generator().manual_seed(1))

    def prefill(is_sparse):
        batch = Batch(ids, torch.arange(PROMPT)[None], torch.zeros(1, PROMPT, dtype=torch.int32), frequencies)
        hidden = model(batch.all_sparse() if is_sparse else batch, 0)[0]
        return model.logits(hidden[:, -1:]).argmax(-1)

    for name, is_sparse in (("sparse", True), ("dense", False)):
        seconds = best(lambda: prefill(is_sparse), arguments.runs)
        print(f"prompt of {PROMPT} tokens, {name}: {seconds:.3f} s, {PROMPT / seconds:.0f} tokens/s", flush=True)

    def decode(batch):
        decoder, tokens = Decoder(model, batch, DECODE_TO), ids[0, :batch]
        for _ in range(DECODE_FROM):
            decoder.step(tokens)
        start = time.perf_counter()
        while decoder.length < DECODE_TO:
            tokens = decoder.step(tokens)
        return time.perf_counter() - start

    for batch in (1, 8, 32):
        seconds = min(decode(batch) for _ in range(arguments.runs))
        steps = DECODE_TO - DECODE_FROM
        print(f"decode, batch {batch}: {1e3 * seconds / steps:.2f} ms a step, {batch * steps / seconds:.0f} tokens/s",
              flush=True)


if __name__ == "__main__":
    main()
