"""tools/bench/router_cost.py end to end, briefly: its processes start, serve and end, and every row has a figure.

What the figures are is not tested: they are the machine's.
"""

import json
import re

import pytest

from tests.e2e import cluster as clusters
from tools.bench import router_cost


@pytest.mark.parametrize("name", ["requests", "full_speed"])
def test_a_short_measurement_has_a_figure_in_every_row(micro, tmp_path, capsys, name):
    out = tmp_path / "rows.json"
    arguments = ["--bin_dir", clusters.bin_folder(), "--model_path", micro, "--seconds", 1, "--only", name, "--out", out]
    assert router_cost.main([str(argument) for argument in arguments]) == 0
    rows = json.loads(out.read_text())
    printed = capsys.readouterr().out
    assert rows
    for what, figure, _, _ in rows:
        number = float(re.match(r"[\d.]+", figure).group())
        assert number > 0, what
        assert f"| {what} | {figure} |" in printed
