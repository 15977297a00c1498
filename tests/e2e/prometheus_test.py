"""A real Prometheus scrapes the three services as docs/operations.md tells it to, and has what they say."""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse

import pytest

from tests.e2e.asking import plain
from tests.e2e.cluster import HOST, ROOT, free_ports, get, wait_until


@pytest.fixture
def prometheus(cluster, tmp_path):
    with scraping(cluster, tmp_path) as url:
        yield url


@contextlib.contextmanager
def scraping(cluster, tmp_path):
    """Base URL of a Prometheus whose configuration is the page's example, with this cluster's addresses."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    page = (ROOT / "docs" / "operations.md").read_text()
    config = re.search(r"```yaml\n(# prometheus\.yml\n.*?)```", page, re.DOTALL).group(1)
    config = config.replace("scrape_interval: 15s", "scrape_interval: 1s\n  scrape_timeout: 1s")
    for process in cluster.processes:
        job = process.role.replace("_", "-")
        config, count = re.subn(
            rf"(job_name: {job}\n.*?targets: )\[.*?\]",
            lambda found, process=process: f'{found.group(1)}["{process.admin.removeprefix("http://")}"]',
            config,
            flags=re.DOTALL,
        )
        assert count == 1, f"the page's example has no job {job}"
    path = tmp_path / "prometheus.yml"
    path.write_text(config)
    address = f"{HOST}:{free_ports(1)[0]}"
    with open(tmp_path / "prometheus.log", "wb") as log:
        child = subprocess.Popen(
            [
                binary,
                f"--config.file={path}",
                f"--web.listen-address={address}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: get(f"http://{address}/-/ready")[0] == 200, lambda: log_of(tmp_path))
        yield f"http://{address}"
    finally:
        child.terminate()
        child.wait()


def log_of(folder):
    return (folder / "prometheus.log").read_text(errors="replace")[-2000:]


def query(prometheus, expression):
    """(labels, value) of each series of an instant query."""
    status, body = get(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    assert status == 200, body
    return [(series["metric"], float(series["value"][1])) for series in json.loads(body)["data"]["result"]]


# Series that begin with the first of their kind.
NOT_CAUSED_HERE = {"Refused before they were requests", "Cancels by reason"}
# Of decode workers of several ranks, which have no device buffers.
OF_DECODE_RANKS = {f"Decode: {what}" for what in ("share of time in exchanges", "bytes sent between ranks", "exchanges", "rows of experts")}


def dashboard_queries(name):
    """(title, query) of every panel, with Grafana's interval written out."""
    board = json.loads((ROOT / "deploy" / "k8s" / "monitoring" / f"{name}.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "10s")


def targets(prometheus):
    return json.loads(get(f"{prometheus}/api/v1/targets")[1])["data"]["activeTargets"]


def test_every_service_is_scraped_without_a_complaint(prometheus, cluster):
    def all_up():
        found = targets(prometheus)
        return len(found) == 3 and all(target["health"] == "up" for target in found)

    wait_until(all_up, lambda: f"three targets that are up: {targets(prometheus)}")
    assert {target["labels"]["job"] for target in targets(prometheus)} == {
        process.role.replace("_", "-") for process in cluster.processes
    }


def test_it_has_what_the_services_say(prometheus, cluster):
    plain(cluster.openai())
    cluster.wait_at_rest()
    generated = cluster.decode.metric("tandem_generation_tokens_total")
    pages = cluster.decode.metric("tandem_kv_pages")
    assert generated > 0

    def seen(expression):
        return [value for _, value in query(prometheus, expression)]

    tokens_seen = 'tandem_generation_tokens_total{job="decode-worker"}'
    wait_until(
        lambda: seen(tokens_seen) == [generated] and seen('tandem_kv_pages{job="decode-worker"}') == [pages],
        lambda: f"{generated} tokens and {pages} pages: {seen(tokens_seen)}",
    )
    # A histogram that Prometheus took apart as one: its quantile is a number.
    quantile = 'histogram_quantile(0.5, sum by (le) (tandem_engine_step_seconds_bucket{job="decode-worker"}))'
    assert [value > 0 for value in seen(quantile)] == [True]


def panels_without_data(prometheus, board):
    missing = set()
    for title, expression in dashboard_queries(board):
        status, body = get(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        assert status == 200, f"{title}: {body}"
        if not json.loads(body)["data"]["result"]:
            missing.add(title)
    return missing


def test_every_query_of_the_dashboards_has_an_answer(fresh_cluster, tmp_path):
    """A query that finds nothing is an empty panel; what nobody has caused yet may be missing, a gauge may not. In a
    cluster that drafts, has device buffers and a prefill worker of two ranks."""
    decode = {"kv_cache_tokens": 4096, "hisparse": {"enabled": True, "host_to_device_ratio": 2}}
    with fresh_cluster(num_drafts=2, decode=decode, prefill={"context_parallel_size": 2}) as cluster:
        with scraping(cluster, tmp_path) as prometheus:
            client = cluster.openai()

            def missing():
                plain(client)
                found = panels_without_data(prometheus, "dashboard") | panels_without_data(prometheus, "workers_dashboard")
                return found - NOT_CAUSED_HERE - OF_DECODE_RANKS

            wait_until(lambda: not missing(), lambda: f"data for {missing()}")
        # Of panels with a part for each of two metrics: numbers, not what is left of a division by nothing.
        assert cluster.decode.metric("tandem_spec_windows_total") > 0
