"""What a Prometheus histogram gained between two readings of a metrics page."""

import math
import re

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def read_histogram(page, name):
    """(sum, {upper bound: cumulative count}) over all series of one histogram of a metrics page; None where absent."""
    total, buckets = 0.0, {}
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}_(sum|bucket)(\{{.*\}})? (\S+)", line)
        if match is None:
            continue
        kind, labels, value = match.groups()
        if kind == "sum":
            total += float(value)
        else:
            bound = float(re.search(r'[{,]le="([^"]+)"', labels).group(1))
            buckets[bound] = buckets.get(bound, 0.0) + float(value)
    return (total, buckets) if buckets else None


def histogram_gain(before, after):
    """{count, mean, p50, p90, p99} of what was added between two read_histogram results."""
    total = after[0] - before[0]
    gained = {bound: after[1][bound] - before[1].get(bound, 0.0) for bound in sorted(after[1])}
    count = gained[math.inf]
    if count <= 0:
        return {"count": 0}
    figures = {"count": int(count), "mean": total / count}
    return figures | {name: _quantile(gained, quantile * count) for name, quantile in QUANTILES.items()}


def _quantile(gained, rank):
    """Linear within the bucket that holds the rank; the last finite bound where that is the infinite one."""
    low, below = 0.0, 0.0
    for bound, cumulative in gained.items():
        if cumulative >= rank:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (rank - below) / (cumulative - below)
        low, below = bound, cumulative
    return low
