"""Exact match on held-out documents: every token of every assistant turn must be the model's argmax, given the text before.

Teacher-forced: since each document has one right answer, this equals greedy decoding being exactly right. Also counts how
often the chained MTP drafts hit: draft j only where the drafts before it did, as it is accepted when served.
"""

import torch

from model import Batch, shift

DRAFTS = 3


def score(model, made, rows_at_once, frequencies):
    """made: of held_out.rows. ({task: [right, asked]}, [share of positions at which the first, first two, .. drafts all hit]).

    Every row is sparse, as served. Runs with gradients on where the model is compiled: off, it would compile again.
    """
    device = frequencies.device
    right, hits, chances = {}, [0] * DRAFTS, 0
    for begin in range(0, len(made), rows_at_once):
        group = made[begin:begin + rows_at_once]
        group += [group[-1]] * (rows_at_once - len(group))  # one shape; the repeated rows are not counted
        ids, weights, positions, document = (
            torch.stack([torch.from_numpy(row[part]) for row, _ in group]).to(device) for part in range(4))
        batch = Batch(ids.long(), positions, document, frequencies).all_sparse()
        hidden, drafts, _, _ = model(batch, DRAFTS)
        speaks = (weights == 1) & (document >= 0)
        hit = speaks.new_ones(speaks.shape)
        for j, state in enumerate([hidden] + drafts):
            state = state.detach()
            here = (shift(document, j + 1) == document) & shift(speaks, j + 1)
            here[:, -(j + 1):] = False
            ok = model.logits(state).detach().argmax(-1) == shift(ids, j + 1)
            if j == 0:
                wrong = here & ~ok
                continue
            hit = hit & ok
            counted = here[:len(made) - begin]
            hits[j - 1] += int((hit & here)[:len(made) - begin].sum())
            chances += int(counted.sum()) if j == 1 else 0
        for r, (_, tasks) in enumerate(made[begin:begin + rows_at_once]):
            bad = set(document[r][wrong[r]].tolist())
            for number, task in enumerate(tasks):
                counts = right.setdefault(task, [0, 0])
                counts[0] += number not in bad
                counts[1] += 1
    return right, [h / max(1, chances) for h in hits]


def table(right, drafts):
    return " | ".join(f"{task} {counts[0]}/{counts[1]}" for task, counts in right.items()) + " | drafts " + " ".join(
        f"{100 * share:.1f}" for share in drafts)
