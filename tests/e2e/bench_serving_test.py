"""tools/bench_serving: against a real cluster (everything answered, as many tokens as asked for, the services' own counts
agree), against NumPy (every figure of a report again from its details), and against a server whose faults are known."""

import http.server
import itertools
import json
import signal
import subprocess
import threading

import numpy
import pytest

from tests.e2e import cluster as clusters

SECONDS_MAX = 120
# The keys of SGLang's bench_serving that readers of its files look for.
SUMMARIES = [
    f"{figure}_{name}_ms"
    for figure in ("mean", "median", "std", "p90", "p95", "p99")
    for name in ("e2e_latency", "ttft", "tpot", "itl")
]
KEYS = set(SUMMARIES) | set(
    "tag backend dataset_name request_rate max_concurrency sharegpt_output_len random_input_len random_output_len "
    "random_range_ratio server_info duration completed total_input_tokens total_input_text_tokens "
    "total_input_vision_tokens total_output_tokens total_output_tokens_retokenized request_throughput input_throughput "
    "output_throughput total_throughput concurrency accept_length max_output_tokens_per_s max_concurrent_requests".split()
)


def command(url, tokenizer, out, *arguments):
    return [
        str(clusters.binary("tools/bench_serving/bench_serving")), "--base-url", url, "--tokenizer", str(tokenizer),
        "--output-file", str(out), "--output-details", *map(str, arguments),
    ]  # fmt: skip


def run(url, tokenizer, out, *arguments):
    """(process, report or None)"""
    process = subprocess.run(
        command(url, tokenizer, out, *arguments), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    return process, json.loads(out.read_text().splitlines()[-1]) if out.exists() else None


def assert_figures_are_numpys(found):
    """Every summary again, from the details of the requests that were answered."""
    answered = [i for i, error in enumerate(found["errors"]) if not error]
    e2e, ttft, lens = (
        numpy.array([found[name][i] for i in answered]) for name in ("e2e_latencies", "ttfts", "output_lens")
    )
    samples = {
        "e2e_latency": e2e,
        "ttft": ttft,
        "tpot": ((e2e - ttft)[lens > 1] / (lens[lens > 1] - 1)),
        "itl": numpy.concatenate([found["itls"][i] for i in answered]),
    }
    for name, values in samples.items():
        values = values * 1000
        expected = {
            "mean": values.mean(), "median": numpy.median(values), "std": values.std(),
            **{f"p{percent}": numpy.percentile(values, percent) for percent in (90, 95, 99)},
        }  # fmt: skip
        for figure, value in expected.items():
            # A Duration counts quarters of a nanosecond: that is the rounding of every difference.
            assert found[f"{figure}_{name}_ms"] == pytest.approx(value, rel=1e-6, abs=1e-5), (figure, name)
    assert found["completed"] == len(answered)
    assert found["total_output_tokens"] == lens.sum()
    assert found["concurrency"] == pytest.approx(e2e.sum() / found["duration"])
    assert found["output_throughput"] == pytest.approx(lens.sum() / found["duration"])


@pytest.mark.parametrize("backend", ["sglang-oai-chat", "sglang-oai", "sglang"])
def test_a_run_is_answered_in_full_and_its_report_adds_up(cluster, micro, tmp_path, backend):
    before = cluster.router.metric("tandem_generation_tokens_total")
    process, found = run(
        cluster.url, micro, tmp_path / "out.jsonl", "--backend", backend, "--dataset-name", "random-ids",
        "--num-prompts", 24, "--random-input-len", 60, "--random-output-len", 20, "--random-range-ratio", 0.3,
        "--max-concurrency", 6, "--seed", 5, "--warmup-requests", 0, "--goodput", "e2e:3600000",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert KEYS <= set(found), KEYS - set(found)
    assert found["completed"] == 24 and found["failures"] == {} and found["num_other_length"] == 0
    expected = before + found["total_output_tokens"]
    clusters.wait_until(
        lambda: cluster.router.metric("tandem_generation_tokens_total") == expected,
        lambda: f"{expected} tokens: {cluster.router.metric('tandem_generation_tokens_total')}",
    )
    assert 18 <= min(found["input_lens"]) and max(found["input_lens"]) <= 60
    assert 6 <= min(found["output_lens"]) and max(found["output_lens"]) <= 20
    assert found["max_concurrent_requests"] <= 6 and found["concurrency"] <= 6
    assert found["goodput"]["good"] == 24
    assert_figures_are_numpys(found)
    assert "Successful requests:                     24" in process.stdout
    assert f"Mean TTFT (ms):                          {found['mean_ttft_ms']:.2f}" in process.stdout


def test_shared_prefixes_are_as_long_as_asked_for(cluster, micro, tmp_path):
    process, found = run(
        cluster.url, micro, tmp_path / "out.jsonl", "--backend", "sglang-oai", "--max-concurrency", 4,
        "--dataset-name", "generated-shared-prefix", "--gsp-num-groups", 2, "--gsp-prompts-per-group", 4,
        "--gsp-system-prompt-len", 128, "--gsp-question-len", 8, "--gsp-output-len", 3, "--warmup-requests", 0,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert found["completed"] == 8 and found["output_lens"] == [3] * 8
    assert min(found["input_lens"]) >= 136, "what joins the two may be a token of its own"


class Server(http.server.ThreadingHTTPServer):
    """Streams a completion of the length asked for. `faults` names what goes wrong with request 0, 1, ..."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, faults=()):
        self.faults, self.counter = dict(enumerate(faults)), itertools.count()
        self.is_silent = threading.Event()  # says that a request to be never answered is there
        self.hold = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.hold.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send_body(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            return self.send_body(200, b'{"data":[{"id":"fake"}]}')
        return self.send_body(404, b"{}")

    def event(self, value):
        self.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.faults.get(next(self.server.counter))
        if fault == "status":
            return self.send_body(503, b'{"error":{"message":"no pair"}}')
        self.send_response(200)
        self.end_headers()  # HTTP/1.0: the end of the connection is the end of the answer
        for i in range(body["max_tokens"]):
            self.event({"choices": [{"index": 0, "text": "x"}]})
            if i == 1 and fault == "broken":
                return None
            if i == 1 and fault == "error event":
                return self.event({"error": {"message": "lost", "code": 500}})
            if i == 1 and fault == "garbage":
                return self.event(b"{")
            if i == 1 and fault == "silent":
                self.server.is_silent.set()
                self.server.hold.wait()
                return None
        self.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": body["max_tokens"]}})
        return self.event(b"[DONE]")


FIXED = ("--backend", "vllm", "--dataset-name", "random-ids", "--random-range-ratio", 1, "--random-input-len", 8,
         "--random-output-len", 5, "--warmup-requests", 0)  # fmt: skip


def test_every_kind_of_failure_is_counted_by_name_and_fails_the_run(micro, tmp_path):
    faults = ["status", "broken", None, "error event", "garbage", "status"]
    with Server(faults) as server:
        process, found = run(
            server.url, micro, tmp_path / "out.jsonl", *FIXED, "--num-prompts", 8, "--max-concurrency", 1
        )
    assert process.returncode == 1
    assert found["failures"] == {
        "status 503": 2, "stream ended without [DONE]": 1, "error event 500": 1, "unreadable event": 1,
    }  # fmt: skip
    assert found["completed"] == 3 and found["total_output_tokens"] == 15
    assert 'failed: 2 x status 503 (first: {"error":{"message":"no pair"}})' in process.stdout
    assert "5 of 8 requests failed" in process.stderr
    assert_figures_are_numpys(found)


def test_an_interruption_reports_what_there_is(micro, tmp_path):
    out = tmp_path / "out.jsonl"
    with Server([None, "silent"]) as server:
        process = subprocess.Popen(
            command(server.url, micro, out, *FIXED, "--num-prompts", 50, "--max-concurrency", 1),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.is_silent.wait(SECONDS_MAX)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    found = json.loads(out.read_text())
    assert found["completed"] == 1 and found["failures"] == {"interrupted": 1} and found["num_unsent"] == 48
    assert "interrupted: 48 requests were never sent" in stdout


def test_an_open_loop_keeps_its_plan(micro, tmp_path):
    with Server() as server:
        process, found = run(
            server.url, micro, tmp_path / "out.jsonl", *FIXED, "--num-prompts", 60, "--request-rate", 100, "--seed", 3
        )
    assert process.returncode == 0 and found["completed"] == 60, process.stderr
    assert found["request_rate"] == 100 and found["max_concurrency"] is None
    # 59 gaps of 10 ms in the mean: the run cannot end before its last arrival. A slow machine only makes it longer.
    assert found["duration"] >= 0.3


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--profile",), 2, "--profile is not offered"),
        (("--dataset-name", "sharegpt"), 2, "needs --dataset-path"),
        (("--dataset-name", "random-ids", "--base-url", "https://x"), 2, "--base-url: "),
        (("--dataset-name", "random-ids", "--ready-check-timeout-sec", "0"), 1, "connect failed: 127.0.0.1:1: "),
    ],
)
def test_what_cannot_be_run_is_one_line(micro, tmp_path, arguments, status, words):
    process, found = run("http://127.0.0.1:1", micro, tmp_path / "out.jsonl", *arguments)
    assert process.returncode == status and words in process.stderr, process.stderr
    assert process.stderr.count("\n") == 1 and found is None
