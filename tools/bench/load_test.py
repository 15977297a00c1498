"""The load generator against a server whose answers and faults are known, and its arithmetic against other arithmetic."""

import http.server
import itertools
import json
import math
import random
import statistics
import threading

import pytest

from tools.bench import figures, load


class Server(http.server.ThreadingHTTPServer):
    """Streams one chunk a token. `faults` names what goes wrong with request 0, 1, ...; probes come first."""

    daemon_threads = True

    def __init__(self, faults=()):
        self.faults = dict(enumerate(faults))
        self.bodies, self.counter, self.steps = [], itertools.count(-2), 0
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            body = json.dumps({"data": [{"id": "fake"}]})
        else:
            steps = self.server.steps
            body = (
                f'tandem_engine_step_seconds_sum{{role="decode"}} {0.015 * steps}\n'
                f'tandem_engine_step_seconds_bucket{{role="decode",le="0.01"}} 0\n'
                f'tandem_engine_step_seconds_bucket{{role="decode",le="0.02"}} {steps}\n'
                f'tandem_engine_step_seconds_bucket{{role="decode",le="+Inf"}} {steps}\n'
            )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def event(self, value):
        self.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.faults.get(next(self.server.counter))
        self.server.bodies.append(body)
        if fault == "status":
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        num_tokens = body["max_tokens"] - (fault == "short")
        for i in range(num_tokens):
            self.event({"choices": [{"delta": {"content": "x"}}]})
            self.server.steps += 1
            if i == 1 and fault == "broken":
                return
            if i == 1 and fault == "error event":
                self.event({"error": {"message": "no"}})
                return
            if i == 1 and fault == "garbage":
                self.event(b"{")
        num_words = len(body["messages"][0]["content"].split())
        usage = {"prompt_tokens": 2 * num_words + 5, "completion_tokens": num_tokens}
        self.event({"choices": [], "usage": usage})
        self.event(b"[DONE]")


def run(server, tmp_path, *arguments):
    """(exit status, report)"""
    out = tmp_path / "report.json"
    status = load.main(["--url", server.url, "--out", str(out), *arguments])
    return status, json.loads(out.read_text())


@pytest.mark.parametrize("loop", [("--concurrency", "3"), ("--rate", "500")], ids=["closed", "open"])
def test_a_clean_run_counts_every_token(tmp_path, loop):
    with Server() as server:
        metrics = server.url + "/metrics"
        status, found = run(
            server, tmp_path, *loop, "--requests", "12", "--answer_tokens", "4:9", "--prompt_tokens", "50:80",
            "--metrics", metrics,
        )  # fmt: skip
        asked = server.bodies[2:]  # without the probes
    assert status == 0 and found["errors"] == {}
    assert found["requests"] == {"planned": 12, "started": 12, "answered": 12}
    tokens = [body["max_tokens"] for body in asked]
    assert found["answer_tokens"] == sum(tokens) and 4 <= min(tokens) < max(tokens) <= 9
    assert found["ttft_seconds"]["count"] == 12
    assert found["itl_seconds"]["count"] == sum(tokens) - 12, "one gap fewer than chunks in each answer"
    assert 49 <= found["prompt_length"]["mean"] <= 81, "two tokens a word and five around them were found out"
    step = found["step_seconds"][metrics]
    assert step["count"] == sum(tokens) and step["mean"] == pytest.approx(0.015)
    assert step["p50"] == pytest.approx(0.015), "the middle of the only bucket"
    assert found["tokens_per_second"] == pytest.approx(found["answer_tokens"] / found["seconds"])


def test_every_kind_of_failure_is_counted_by_name_and_fails_the_run(tmp_path, capsys):
    faults = ["status", "short", "broken", "error event", "garbage", None, "status"]
    with Server(faults) as server:
        status, found = run(server, tmp_path, "--concurrency", "1", "--requests", "8", "--answer_tokens", "5")
    assert status == 1
    assert found["errors"] == {
        "status 503": 2,
        "answer of another length than asked for": 1,
        "stream ended without [DONE]": 1,
        "error event": 1,
        "unreadable answer: JSONDecodeError": 1,
    }
    assert found["requests"]["answered"] == 2 and found["answer_tokens"] == 10
    assert found["ttft_seconds"]["count"] == 2, "a failed request is in no latency"
    assert "error: status 503: 2" in capsys.readouterr().out


def test_the_same_seed_asks_the_same(tmp_path):
    seen = []
    for seed in ("7", "7", "8"):
        with Server() as server:
            run(server, tmp_path, "--concurrency", "1", "--requests", "5", "--seed", seed, "--answer_tokens", "1:9")
            seen.append(server.bodies)
    assert seen[0] == seen[1] != seen[2]


def test_an_open_loop_starts_at_the_rate_and_stops_at_the_time(tmp_path):
    with Server() as server:
        _, found = run(server, tmp_path, "--rate", "50", "--requests", "10000", "--seconds", "0.5", "--answer_tokens", "1")
    # 25 starts are planned within the half second; the draw's own spread is about 5.
    assert 5 <= found["requests"]["started"] <= 60
    assert found["start_lateness_seconds"]["count"] == found["requests"]["started"]


def test_an_endpoint_that_is_not_there_is_one_line(capsys):
    with Server() as server:
        url = server.url
    assert load.main(["--url", url, "--concurrency", "1"]) == 1
    assert "load.py: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--url", "http://10.0.0.1:8000", "--concurrency", "1"),
        ("--url", "http://example.com", "--concurrency", "1"),
        ("--url", "https://127.0.0.1", "--concurrency", "1"),
        ("--metrics", "http://192.168.0.1/metrics", "--concurrency", "1"),
        ("--concurrency", "1", "--rate", "1"),
        (),
        ("--concurrency", "0"),
        ("--concurrency", "1025"),
        ("--concurrency", "1", "--requests", "10001"),
        ("--concurrency", "1", "--seconds", "3601"),
        ("--concurrency", "1", "--prompt_tokens", "9:3"),
    ],
)
def test_what_leaves_loopback_or_has_no_bound_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        load.parse_arguments(list(arguments))
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_summaries_agree_with_the_standard_library():
    samples = random.Random(3).sample(range(1000), 201)
    found = figures.summary(samples)
    assert found["mean"] == pytest.approx(statistics.mean(samples))
    assert found["p50"] == statistics.median(samples)
    assert sum(s <= found["p90"] for s in samples) == math.ceil(0.9 * 201)
    assert sum(s <= found["p99"] for s in samples) == math.ceil(0.99 * 201)
    assert figures.summary([]) == {"count": 0}
    assert figures.summary([4])["p99"] == 4


def test_a_histograms_gain_forgets_what_was_there_before():
    before = (10.0, {1.0: 5.0, 2.0: 10.0, math.inf: 10.0})
    after = (16.0, {1.0: 5.0, 2.0: 14.0, math.inf: 14.0})
    found = figures.histogram_gain(before, after)
    assert found["count"] == 4 and found["mean"] == pytest.approx(1.5)
    assert found["p50"] == pytest.approx(1.5) and 1.9 < found["p99"] <= 2
    assert figures.histogram_gain(after, after) == {"count": 0}
    assert figures.read_histogram("other_metric 1\n", "tandem_engine_step_seconds") is None
