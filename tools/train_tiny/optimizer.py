"""Muon for matrices, AdamW for the rest (embedding, head, norms, router, indexer)."""

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(g):
    """Five Newton-Schulz steps on a stack of matrices [n, rows, columns]: singular values towards 1."""
    a, b, c = NEWTON_SCHULZ
    x = g.bfloat16()
    transposed = x.shape[-2] > x.shape[-1]
    if transposed:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return (x.mT if transposed else x).float()


class Muon:
    """Nesterov momentum, orthogonalised updates; matrices of one shape are handled in one batch."""

    def __init__(self, parameters, lr=0.01, decay=0.03):
        self.lr, self.decay = lr, decay
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(p.shape[-2:], []).append(p)
        self.momentum = {p: torch.zeros_like(p) for p in parameters}

    @torch.no_grad()
    def step(self, lr_factor, momentum):
        for (rows, columns), group in self.groups.items():
            updates = []
            for p in group:
                m = self.momentum[p]
                m.lerp_(p.grad, 1 - momentum)
                updates.append(p.grad.lerp(m, momentum).reshape(-1, rows, columns))
            update = orthogonalize(torch.cat(updates))
            lr = self.lr * lr_factor * max(1.0, rows / columns) ** 0.5
            for p, u in zip(group, update.split([u.shape[0] for u in updates])):
                p.mul_(1 - self.decay * self.lr * lr_factor)
                p.add_(u.view_as(p), alpha=-lr)

    def state(self, names):
        return {names[p]: m for p, m in self.momentum.items()}

    def load(self, state, parameters):
        for name, m in state.items():
            self.momentum[parameters[name]].copy_(m)
