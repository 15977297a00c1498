"""What an operator sees: health, readiness, metrics, status pages, configuration errors."""

import re
import shutil
import subprocess

import pytest

from tests.e2e.asking import plain
from tests.e2e.cluster import ROOT, START_SECONDS, binary, get, wait_until

ROLES = ["router", "prefill_worker", "decode_worker"]


def process(cluster, role):
    return {p.role: p for p in cluster.processes}[role]


@pytest.mark.parametrize("role", ROLES)
def test_every_service_answers_its_operators(cluster, role):
    admin = process(cluster, role).admin
    assert get(admin + "/health")[0] == 200
    assert get(admin + "/readyz")[0] == 200
    assert role.split("_")[0] in get(admin + "/statusz")[1]
    assert get(admin + "/nothing")[0] == 404


def test_a_decode_worker_says_how_many_it_runs_at_a_time_and_why(cluster):
    page = get(cluster.decode.admin + "/statusz")[1]
    told = re.search(r"^(\d+) sequences hold pages at a time, by memory: (\d+) by (\d+) KV pages .*, at least (\d+) for the choices of one request, at most (\d+) by rows", page, re.MULTILINE)
    assert told, page
    limit, by_pages, num_pages, by_choices, by_rows = map(int, told.groups())
    assert num_pages == cluster.decode.metric("tandem_kv_pages") and by_pages == (num_pages + 1) // 2
    assert limit == min(max(by_pages, by_choices), by_rows, 4096) == cluster.decode.metric("tandem_max_running_reqs")


@pytest.mark.parametrize("role", ROLES)
def test_metrics_pass_promtools_check(cluster, role):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    _, text = get(process(cluster, role).admin + "/metrics")
    assert "tandem_" in text
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("role", ROLES)
def test_the_operations_page_lists_exactly_the_metrics_that_are_exposed(cluster, role):
    plain(cluster.openai())  # metrics with labels appear with their first event

    def exposed():
        _, text = get(process(cluster, role).admin + "/metrics")
        return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))

    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split("### " + role.replace("_", " ").capitalize())[1].split("###")[0]
    listed = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    wait_until(lambda: exposed() == listed, lambda: f"{exposed() ^ listed} on one side alone")


@pytest.mark.parametrize("role", ROLES)
def test_the_public_port_of_the_router_and_every_binary_explain_their_configuration(role):
    result = subprocess.run([binary(f"{role}/{role}"), "--help"], capture_output=True, text=True, timeout=START_SECONDS)
    assert result.returncode == 0
    assert "--config" in result.stdout + result.stderr


def test_a_name_to_advertise_that_leads_nowhere_stops_the_start(micro, tmp_path):
    path = tmp_path / "prefill.yaml"
    process = "process:\n  rpc_port: 0\n  bootstrap_port: 0\n  admin_port: 0\n  advertise_host: no-such-host.invalid\n"
    path.write_text(f"cluster:\n  model_path: {micro}\n" + process)
    result = subprocess.run(
        [binary("prefill_worker/prefill_worker"), f"--config={path}"], capture_output=True, text=True, timeout=START_SECONDS
    )
    assert result.returncode == 1
    assert 'process.advertise_host "no-such-host.invalid" cannot be resolved' in result.stderr


@pytest.mark.parametrize("role", ROLES)
def test_an_unknown_key_stops_the_start_with_file_and_line(tmp_path, role):
    path = tmp_path / "bad.yaml"
    path.write_text("process:\n  no_such_key: 1\n")
    command = [binary(f"{role}/{role}"), f"--config={path}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    assert result.returncode not in (0, -6, -11)
    assert f"{path}:2" in result.stderr and "no_such_key" in result.stderr
