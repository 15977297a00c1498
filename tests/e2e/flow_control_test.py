"""docs/flow_control.md is about this tree: its metrics exist, its files exist, its waits form no cycle."""

import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/flow_control.md").read_text()


def table(heading):
    """Rows of the table under that heading, without its first two lines."""
    lines = [line for line in PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_bound_has_a_metric_that_is_exposed():
    exposed = set(re.findall(r"^\| `(tandem_\w+)`", (ROOT / "docs/operations.md").read_text(), re.MULTILINE))
    rows = table("What is kept, and how much of it")
    assert len(rows) >= 15
    for what, _, bound, metric in rows:
        assert bound, f"{what} has no bound"
        assert metric.strip("`") in exposed, f"{what}: {metric} is no metric of docs/operations.md"


def test_every_file_named_exists():
    for path in re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9.]+)+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_every_setting_named_exists():
    settings = (ROOT / "docs/configuration.md").read_text()
    for name in re.findall(r"`(process\.[a-z_.]+)`", PAGE):
        assert f"`{name}`" in settings, name


def test_the_waits_form_no_cycle_and_every_wait_ends():
    rows = table("Who waits for whom")
    assert len(rows) >= 15
    graph = {}
    for waiter, waited_for, because, at_the_latest in rows:
        assert because and at_the_latest, f"{waiter} waits for {waited_for} without an end"
        graph.setdefault(waiter, set()).add(waited_for)
    order = list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the cycle
    assert order.index("client socket") < order.index("running sequence") < order.index("client")
