"""Draws docs/hisparse.png from what tools/bench/hisparse printed.

usage: python plot.py OUT.jsonl OUT.png [tokens_per_s | tokens_per_cpu_s]    (needs matplotlib)
"""

import json
import sys


UNITS = {"tokens_per_s": "tokens/s, all together", "tokens_per_cpu_s": "tokens per second of processor time"}


def plot(source, target, figure_of="tokens_per_s"):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    head, *rows = [json.loads(line) for line in open(source)]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for is_on, label, marker in ((False, "HiSparse off", "s"), (True, "HiSparse on", "o")):
        points = [(row["requests"], row[figure_of]) for row in rows if row["hisparse"] is is_on]
        axes.plot(*zip(*points), label=label, marker=marker)
        admitted = head["admitted_on" if is_on else "admitted_off"]
        axes.axvline(admitted, linestyle=":", color=axes.lines[-1].get_color())
        axes.annotate(f"{admitted} fit", (admitted, 0), rotation=90, va="bottom", ha="right")
    axes.set_xlabel(f"requests of {head['context']:,} tokens at once")
    axes.set_ylabel(UNITS[figure_of])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    plot(*sys.argv[1:])
