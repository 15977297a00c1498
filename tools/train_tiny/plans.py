"""How a training is laid out: its stages, what they draw, learning rates.

A stage ends at a share of the training's time. rows x length tokens make a step; retrieval texts grow linearly from
`retrieval[0]` to `retrieval[1]` tokens within it where `draw` is "draw" (others have their own lengths). index_rows: of each
row, how many teach the indexer; sparse_rows: how many attend sparsely. One shape for as long as possible: each new one
compiles for up to a minute.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    end: float
    length: int
    rows: int
    draw: str = "draw"  # of tasks.mixture
    retrieval: tuple = (0, 0)
    index_rows: int = 0
    sparse_rows: int = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    stages: tuple
    lr_peak: float
    lr_decay_begin: float
    lr_end: float
    second_mtp_pass: float  # from this share of the time on, the MTP layer is chained twice
    mtp_weights: tuple = (0.3, 0.15)
    # On the loss of prompt tokens. They cannot be foreseen: late in training their loss outweighs that of the few tokens
    # where the model still goes wrong.
    prompt_factor: float = 1.0


PLANS = {
    # From random weights.
    "first": Plan((
        Stage("dense short", 0.10, 4096, 8, retrieval=(300, 300)),
        Stage("dense growing", 0.45, 4096, 8, retrieval=(300, 3800)),
        Stage("dense long, index", 0.80, 16384, 2, retrieval=(3800, 8000), index_rows=256),
        Stage("sparse", 1.00, 16384, 2, retrieval=(8000, 12000), index_rows=256, sparse_rows=4096),
    ), lr_peak=1.0, lr_decay_begin=0.15, lr_end=0.02, second_mtp_pass=0.30),
    # On from a trained checkpoint: long texts.
    "long": Plan((
        Stage("dense, index", 0.62, 16384, 2, "draw_long", index_rows=256),
        Stage("sparse", 1.00, 16384, 2, "draw_long", index_rows=256, sparse_rows=4096),
    ), lr_peak=0.4, lr_decay_begin=0.04, lr_end=0.01, second_mtp_pass=0.0),
    # On from that: which of several functions, which of their parameters. Short documents pass twice as fast.
    "tools": Plan((
        Stage("dense, index", 0.74, 16384, 2, "draw_tools", index_rows=128),
        Stage("sparse", 1.00, 16384, 2, "draw_long", index_rows=256, sparse_rows=4096),
    ), lr_peak=0.4, lr_decay_begin=0.04, lr_end=0.01, second_mtp_pass=0.70, prompt_factor=0.0),
    # On from that: types that only the schema tells, sums of percentages; drafts of the MTP layer again.
    "types": Plan((
        Stage("dense, index", 0.72, 16384, 2, "draw_types", index_rows=128),
        Stage("sparse", 1.00, 16384, 2, "draw_long", index_rows=256, sparse_rows=4096),
    ), lr_peak=0.4, lr_decay_begin=0.04, lr_end=0.01, second_mtp_pass=0.40, prompt_factor=0.0),
    # The MTP layer alone (--only mtp), attending as it is served.
    "drafts": Plan((
        Stage("sparse", 1.00, 16384, 2, "draw_long", index_rows=256, sparse_rows=4096),
    ), lr_peak=0.3, lr_decay_begin=0.04, lr_end=0.01, second_mtp_pass=0.0, mtp_weights=(1.0, 1.0)),
}


def stage_at(plan, progress):
    return next((i for i, stage in enumerate(plan.stages) if progress < stage.end), len(plan.stages) - 1)


def retrieval_tokens_max(plan, progress):
    i = stage_at(plan, progress)
    stage, begin = plan.stages[i], plan.stages[i - 1].end if i else 0.0
    low, high = stage.retrieval
    return int(low + (high - low) * min(1.0, (progress - begin) / (stage.end - begin)))


def lr_factor(plan, progress, step):
    warm = min(1.0, (step + 1) / 60) * plan.lr_peak
    rest = max(0.0, progress - plan.lr_decay_begin) / (1 - plan.lr_decay_begin)
    return warm * (1 - (1 - plan.lr_end) * min(1.0, rest))
