"""beside.py against processes and pages whose figures are known, and its arithmetic worked by hand."""

import http.server
import json
import math
import os
import sys
import threading

import pytest

from tools.bench import beside, figures, processes

PAGE = (
    'tandem_engine_step_seconds_sum{{role="decode"}} {sum}\n'
    'tandem_engine_step_seconds_bucket{{role="decode",le="0.01"}} 0\n'
    'tandem_engine_step_seconds_bucket{{role="decode",le="0.02"}} {steps}\n'
    'tandem_engine_step_seconds_bucket{{role="decode",le="+Inf"}} {steps}\n'
)


class Pages(http.server.ThreadingHTTPServer):
    """Each reading of /metrics finds ten steps of 15 ms more; /nothing has none."""

    daemon_threads = True

    def __enter__(self):
        self.steps = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.steps += 10
        page = PAGE.format(sum=0.015 * self.server.steps, steps=self.server.steps)
        body = (page if self.path == "/metrics" else "other 1\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def pages():
    with Pages(("127.0.0.1", 0), Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_command_s_steps_and_time_are_what_was_added_meanwhile(pages, tmp_path, capsys):
    out = tmp_path / "report.json"
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    status = beside.main(
        ["--pid", f"me={os.getpid()}", "--metrics", pages + "/metrics", "--out", str(out), "--"]
        + [sys.executable, "-c", burn]
    )
    assert status == 0
    found = json.loads(out.read_text())
    step = found["step_seconds"][pages + "/metrics"]
    assert step["count"] == 10 and step["mean"] == pytest.approx(0.015)
    assert step["p50"] == pytest.approx(0.015), "the middle of the only bucket"
    assert found["seconds"] >= 0.3
    assert set(found["cpu"]) == {"me"} and found["cpu"]["me"]["user_seconds"] >= 0
    assert "me " in capsys.readouterr().out


def test_the_exit_status_is_the_command_s(pages):
    assert beside.main(["--", sys.executable, "-c", "raise SystemExit(7)"]) == 7


@pytest.mark.parametrize("arguments", [("--pid", "x=99999999"), ("--metrics", "http://127.0.0.1:1/metrics")])
def test_what_is_not_there_is_one_line_and_nothing_is_run(arguments, tmp_path, capsys):
    mark = tmp_path / "ran"
    assert beside.main([*arguments, "--", sys.executable, "-c", f"open({str(mark)!r}, 'w')"]) == 1
    assert "beside.py: " in capsys.readouterr().err and not mark.exists()


def test_a_page_without_steps_is_named(pages, capsys):
    assert beside.main(["--metrics", pages + "/nothing", "--", "true"]) == 1
    assert "no tandem_engine_step_seconds" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--pid", "7", "--", "true"), ("--pid", "=7", "--", "true"), ()])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(SystemExit) as caught:
        beside.main(list(arguments))
    assert caught.value.code == 2


def test_a_process_s_time_is_the_kernel_s_count_of_it():
    before, own_before = processes.cpu(os.getpid()), os.times()
    while os.times().user + os.times().system < own_before.user + own_before.system + 0.2:
        pass
    used = processes.cpu(os.getpid()) - before
    assert used.total >= 0.2 - 4 * processes.TICK_SECONDS
    assert processes.resident_bytes(os.getpid()) > 1 << 20


def test_a_histogram_s_gain_forgets_what_was_there_before():
    before = (10.0, {1.0: 5.0, 2.0: 10.0, math.inf: 10.0})
    after = (16.0, {1.0: 5.0, 2.0: 14.0, math.inf: 14.0})
    found = figures.histogram_gain(before, after)
    assert found["count"] == 4 and found["mean"] == pytest.approx(1.5)
    assert found["p50"] == pytest.approx(1.5) and 1.9 < found["p99"] <= 2
    assert figures.histogram_gain(after, after) == {"count": 0}
    assert figures.read_histogram("other_metric 1\n", "tandem_engine_step_seconds") is None
