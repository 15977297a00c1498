"""Trains the indexers of some layers again, from new weights, by KL to their layer's attention; all else stays as it is.

usage: python warm_indexer.py WEIGHTS.safetensors TOKENIZER.json OUT.safetensors [--layers 2,3] [--steps N]
                              [--length 2048] [--device cpu]
Without --layers it only prints how many index scores are exactly zero in each layer: an indexer whose relu is dead scores
everything zero, selects the first positions for ever, and learns nothing more.
"""

import argparse
import random

import torch
from safetensors.torch import load_file, save_file

import model as tiny
from config import Config
from data import Encoder, rows
from model import Batch, TinyModel

parser = argparse.ArgumentParser()
parser.add_argument("weights")
parser.add_argument("tokenizer")
parser.add_argument("out")
parser.add_argument("--layers", default="")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--device", default="cpu")
arguments = parser.parse_args()


def zero_shares(model, batch):
    """Share of exact zeros among the scores of earlier keys of the same document, layer by layer."""
    shares, x = [], torch.nn.functional.embedding(batch.tokens, model.embed_tokens).to(torch.bfloat16)
    for layer in model.layers:
        a = layer.input_layernorm(x)
        attention = layer.self_attn
        qr = attention.q_a_layernorm(torch.nn.functional.linear(a, attention.q_a_proj.to(a.dtype)))
        scores = tiny.index_scores(*attention.indexer(a, qr, batch))
        n = scores.shape[-1]
        allowed = torch.ones(n, n, dtype=torch.bool, device=scores.device).tril()[None]
        allowed = allowed & (batch.document[:, :, None] == batch.document[:, None, :])
        shares.append(float((scores[allowed] == 0).float().mean()))
        x = layer(x, batch, "warmup")[0]
    return shares


def main():
    torch.manual_seed(3)
    config = Config()
    weights = load_file(arguments.weights)
    model = TinyModel(config)
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    model.to(arguments.device).eval()
    frequencies = torch.tensor(config.rope_frequencies(), device=arguments.device)
    stream = rows(Encoder(arguments.tokenizer), random.Random(20), arguments.length, lambda: arguments.length * 9 // 10)

    def take():
        ids, _, positions, document = (torch.from_numpy(part)[None].to(arguments.device) for part in next(stream))
        return Batch(ids.long(), positions, document, None, None, frequencies)

    chosen = [int(layer) for layer in arguments.layers.split(",") if layer]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.no_grad():
        print("zero scores by layer:", " ".join(f"{share:.3f}" for share in zero_shares(model, take())), flush=True)
    if not chosen:
        return
    trained = []
    for layer in chosen:
        fresh = tiny.Indexer(config).to(arguments.device)
        model.layers[layer].self_attn.indexer = fresh
        trained += list(fresh.parameters())
    optimizer = torch.optim.Adam(trained, lr=arguments.lr, betas=(0.9, 0.95))
    for step in range(arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * min(1.0, (step + 1) / 10) * (1 - step / arguments.steps)
        batch = take()
        x = torch.nn.functional.embedding(batch.tokens, model.embed_tokens).to(torch.bfloat16)
        loss = 0
        for number, layer in enumerate(model.layers):
            if number > max(chosen):
                break
            x, kl = layer(x.detach(), batch, "warmup")
            if number in chosen:
                loss = loss + kl / batch.tokens.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step + 1 == arguments.steps:
            print(f"step {step} kl {loss.item():.4f}", flush=True)
    with torch.no_grad():
        print("zero scores by layer:", " ".join(f"{share:.3f}" for share in zero_shares(model, take())), flush=True)
    state = model.state_dict()
    save_file({name: state[name].to(tensor.dtype).cpu().contiguous() for name, tensor in weights.items()}, arguments.out)


main()
