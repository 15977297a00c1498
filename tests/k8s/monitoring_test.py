"""The alerts and the dashboard ask for metrics that the services have, each of its role, and lead to the runbook."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.e2e.cluster import ROOT
from tests.k8s.scaling_test import documented

FOLDER = ROOT / "deploy" / "k8s" / "monitoring"
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
BOARDS = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("dashboard", "workers_dashboard")}
PANELS = {name: [panel for panel in board["panels"] if panel["type"] != "row"] for name, board in BOARDS.items()}
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"] for panels in PANELS.values() for panel in panels for target in panel["targets"]
]


def promtool(*arguments):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_on_its_situation_and_on_no_other():
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")
    cases = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    names = {rule["alert"] for rule in RULES}
    quiet, loud = cases
    assert {case["alertname"] for case in quiet["alert_rule_test"]} == names
    assert loud["promql_expr_test"][0]["exp_samples"][0]["value"] == len(names), "every alert fires"


def test_every_query_names_metrics_that_exist_and_their_role():
    for query in QUERIES:
        selected = re.findall(r'(tandem_\w+)\{role="(\w+)"', query)
        assert len(selected) == len(re.findall(r"\btandem_", query)), f"a metric without its role: {query}"
        assert selected or query.startswith("up{")
        for metric, role in selected:
            types = documented(role)
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            base = base if types.get(base) == "histogram" else metric
            assert base in types, f"{role} has no {base}: {query}"
            assert (types[base] == "histogram") == (base != metric), query
            if types[base] in ("counter", "histogram"):
                assert re.search(rf"(rate|increase)\({metric}\{{", query), f"a counter without its rate: {query}"


def test_the_dashboards_have_names_of_their_own():
    assert len({(board["uid"], board["title"]) for board in BOARDS.values()}) == len(BOARDS)
    assert all(name in (FOLDER / "README.md").read_text() for name in BOARDS)


def test_every_alert_has_its_section_of_the_runbook():
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    sections = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in RULES:
        assert rule["annotations"]["runbook"] in sections, rule["alert"]
        assert f"| `{rule['alert']}` | " in page, f"{rule['alert']} is not in the table of alerts"
        assert rule["labels"]["severity"] in ("page", "warning")


@pytest.mark.parametrize("board", BOARDS)
def test_panels_have_titles_units_and_places_of_their_own(board):
    taken, panels = set(), PANELS[board]
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert len({panel["id"] for panel in BOARDS[board]["panels"]}) == len(BOARDS[board]["panels"])


def test_the_names_that_sglangs_are_mapped_to_exist():
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split("### From SGLang's names\n")[1].split("### ")[0]
    everywhere = {name for role in ("router", "prefill", "decode") for name in documented(role)}
    named = re.findall(r"\b(tandem_\w+)(?:\{role=\"(\w+)\"\})?", section)
    assert len(named) > 20
    for metric, role in named:
        assert metric in (documented(role) if role else everywhere), f"{metric} of {role or 'any role'}"
