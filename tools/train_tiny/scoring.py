"""Exact match on held-out documents: every token of every assistant turn must be the model's argmax, given the text before.

Teacher-forced: since each document has one right answer, this equals greedy decoding being exactly right. Also counts how
often the chained MTP drafts hit: draft j only where the drafts before it did, as it is accepted when served.
"""

import numpy as np
import torch

from model import Batch, shift

DRAFTS = 3


def document_ends(rows, device):
    """(cu_lengths of all documents in row order, the longest): what the flash kernel wants. rows: document ids [length]."""
    ends = [0]
    for r, row in enumerate(rows):
        ends += (r * len(row) + np.append(np.flatnonzero(np.diff(row)) + 1, len(row))).tolist()
    return torch.tensor(ends, dtype=torch.int32, device=device), int(np.diff(ends).max())


def score(model, made, rows_at_once, frequencies, temperature=0.0, dense=False, num_drafts=DRAFTS):
    """made: of held_out.rows. ({task: [right, asked]}, [share of positions at which the first, first two, .. drafts all hit]).

    temperature: of the drafts' test; above 0 a draft hits where draft and model, with the same Gumbel noise, draw the same
    token, which is how drafts are accepted when served. Every row is sparse, as served, but where `dense` is asked for.
    Runs with gradients on where the model is compiled: off, it would compile again.
    """
    noise = torch.Generator(frequencies.device).manual_seed(1)
    device = frequencies.device
    right, hits, chances = {}, [0] * num_drafts, 0
    for begin in range(0, len(made), rows_at_once):
        group = made[begin:begin + rows_at_once]
        group += [group[-1]] * (rows_at_once - len(group))  # one shape; the repeated rows are not counted
        ids, weights, positions, document = (
            torch.stack([torch.from_numpy(row[part]) for row, _ in group]).to(device) for part in range(4))
        batch = Batch(ids.long(), positions, document, frequencies, *document_ends([row[3] for row, _ in group], device))
        if not dense:
            batch.all_sparse()
        hidden, drafts, _, _ = model(batch, num_drafts)
        speaks = (weights == 1) & (document >= 0)
        hit = speaks.new_ones(speaks.shape)
        gumbel, drawn = 0, shift(ids, 1)
        for j, state in enumerate([hidden] + drafts):
            state = state.detach()
            here = (shift(document, j + 1) == document) & shift(speaks, j + 1)
            here[:, -(j + 1):] = False
            logits = model.logits(state).detach()
            if j == 0:
                wrong = here & (logits.argmax(-1) != shift(ids, 1))
                if temperature:
                    # One noise per predicted position: row i of the model, row i - j of draft j.
                    gumbel = -torch.empty_like(logits).exponential_(generator=noise).log_() * temperature
                    drawn = (logits + gumbel).argmax(-1)
                continue
            ok = (logits + (shift(gumbel, j) if temperature else 0)).argmax(-1) == shift(drawn, j)
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
