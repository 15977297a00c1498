"""Draws docs/hisparse.png from what tools/bench/hisparse printed.

usage: python plot.py OUT.jsonl OUT.png    (needs matplotlib)
"""

import json
import sys


def plot(source, target):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    head, *rows = [json.loads(line) for line in open(source)]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for is_on, label, marker in ((False, "HiSparse off", "s"), (True, "HiSparse on", "o")):
        points = [(row["requests"], row["tokens_per_s"]) for row in rows if row["hisparse"] is is_on]
        axes.plot(*zip(*points), label=label, marker=marker)
        admitted = head["admitted_on" if is_on else "admitted_off"]
        axes.axvline(admitted, linestyle=":", color=axes.lines[-1].get_color())
        axes.annotate(f"{admitted} fit", (admitted, 0), rotation=90, va="bottom", ha="right")
    axes.set_xlabel(f"requests of {head['context']:,} tokens at once")
    axes.set_ylabel("tokens/s, all together")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    plot(*sys.argv[1:])
