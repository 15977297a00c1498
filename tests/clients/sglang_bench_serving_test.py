"""sglang.bench_serving, unchanged, over its three back ends and its data sets that need no download.

What it reports is compared with what it was asked for and with the router's own counters: the program believes its
input lengths and, over the OpenAI paths, its output lengths, so that only the server knows whether they are true.
"""

import json

import pytest

from tests.clients.conftest import CHECKPOINT
from tests.clients.environment import run
from tests.e2e import cluster as clusters
from tools.eval import task_files

pytestmark = pytest.mark.large

BACKENDS = pytest.mark.parametrize("backend", ["sglang-oai", "sglang-oai-chat", "sglang"])
REPORT_LINES = [
    "Successful requests", "Benchmark duration (s)", "Total input tokens", "Total generated tokens",
    "Request throughput (req/s)", "Output token throughput (tok/s)", "Peak output token throughput (tok/s)",
    "Mean E2E Latency (ms)", "Median TTFT (ms)", "P99 TPOT (ms)", "Max ITL (ms)",
]
RANDOM_IDS = ["--dataset-name", "random-ids", "--random-range-ratio", 1]


class Counted:
    """What the router counts from here on."""

    NAMES = {
        "prompt": "tandem_prompt_tokens_total", "generated": "tandem_generation_tokens_total",
        "answers": "tandem_router_requests_total",
    }

    def __init__(self, cluster):
        self._cluster = cluster
        self._before = self._now()

    def _now(self):
        self._cluster.wait_at_rest()
        return {key: self._cluster.router.metric(name) for key, name in self.NAMES.items()}

    def since(self):
        return {key: value - self._before[key] for key, value in self._now().items()}


def bench(cluster, backend, arguments, folder):
    """The record of the run, with details."""
    out = folder / "out.jsonl"
    printed = run(
        "sglang",
        [
            "-m", "sglang.bench_serving", "--backend", backend, "--base-url", cluster.url, "--model", clusters.MODEL,
            "--tokenizer", CHECKPOINT, "--output-file", out, "--output-details", "--disable-tqdm", *arguments,
        ],
        folder,
    )
    for line in REPORT_LINES:
        assert f"\n{line}:" in printed, f"no {line} in the report"
    (record,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert not any(record["errors"]), record["errors"]
    assert record["backend"] == backend
    for name in ("ttft", "tpot", "itl", "e2e_latency"):
        assert record[f"median_{name}_ms"] > 0, name
        assert record[f"p99_{name}_ms"] >= record[f"median_{name}_ms"]
    assert record["median_ttft_ms"] <= record["median_e2e_latency_ms"]
    return record


@BACKENDS
def test_random_ids(cluster, tmp_path, backend):
    """Prompts sent as token ids where the program can, over /generate: then every token of the report is one that the
    router counted, the warm-up request's apart. Elsewhere it sends their text, which the server reads anew."""
    count, prompt, answer = 8, 64, 24
    is_ids = backend == "sglang"
    counted = Counted(cluster)
    record = bench(
        cluster, backend,
        [
            *RANDOM_IDS, "--num-prompts", count, "--random-input-len", prompt, "--random-output-len", answer,
            *(["--tokenize-prompt"] if is_ids else []),
        ],
        tmp_path,
    )
    assert record["completed"] == count
    assert record["total_output_tokens"] == count * answer
    assert record["output_lens"] == [answer] * count
    assert record["total_input_tokens"] == count * prompt
    since = counted.since()
    assert since["generated"] == (count + 1) * answer
    if is_ids:
        assert since["prompt"] == (count + 1) * prompt
    else:
        assert since["prompt"] > count + 1
    assert all(record["generated_texts"])


def test_lengths_drawn_from_a_range_at_a_rate(cluster, tmp_path):
    counted = Counted(cluster)
    record = bench(
        cluster, "sglang",
        [
            "--dataset-name", "random-ids", "--random-range-ratio", 0.25, "--num-prompts", 12,
            "--random-input-len", 200, "--random-output-len", 32, "--tokenize-prompt",
            "--request-rate", 20, "--max-concurrency", 3, "--warmup-requests", 0, "--seed", 7, "--flush-cache",
        ],
        tmp_path,
    )
    assert record["completed"] == 12
    assert record["max_concurrency"] == 3
    assert record["concurrency"] <= 3
    assert len(set(record["output_lens"])) > 1
    assert record["server_info"]["internal_states"], "what it asks at the end"
    assert counted.since() == {
        "prompt": record["total_input_tokens"], "generated": record["total_output_tokens"], "answers": 12,
    }


@BACKENDS
def test_generated_shared_prefix(cluster, tmp_path, backend):
    counted = Counted(cluster)
    record = bench(
        cluster, backend,
        [
            "--dataset-name", "generated-shared-prefix", "--gsp-num-groups", 3, "--gsp-prompts-per-group", 4,
            "--gsp-system-prompt-len", 160, "--gsp-question-len", 24, "--gsp-output-len", 16,
        ],
        tmp_path,
    )
    assert record["completed"] == 12
    assert record["total_output_tokens"] == 12 * 16
    since = counted.since()
    assert since["generated"] == 13 * 16
    assert since["prompt"] >= 13 * 160


def test_sharegpt_from_a_file_of_ours(cluster, tmp_path):
    """Answers end where the model ends them, and usage says how long they were."""
    task_files.write(tmp_path / "tasks", count=10)
    counted = Counted(cluster)
    record = bench(
        cluster, "sglang-oai-chat",
        [
            "--dataset-name", "sharegpt", "--dataset-path", tmp_path / "tasks" / "sharegpt.json", "--num-prompts", 10,
            "--sharegpt-output-len", 300, "--disable-ignore-eos", "--warmup-requests", 0,
            "--extra-request-body", json.dumps({"stream_options": {"include_usage": True}}),
        ],
        tmp_path,
    )
    assert record["completed"] == 10
    assert counted.since() == {
        "prompt": sum(record["input_lens"]), "generated": sum(record["output_lens"]), "answers": 10,
    }
    assert record["total_output_tokens"] == sum(record["output_lens"]) < 3000
    assert sum("The answer is " in text for text in record["generated_texts"]) >= 8


def test_chat_that_is_not_streamed(cluster, tmp_path):
    """Over the other paths the program reads streams alone."""
    out = tmp_path / "out.jsonl"
    run(
        "sglang",
        [
            "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat", "--base-url", cluster.url,
            "--model", clusters.MODEL, "--tokenizer", CHECKPOINT, "--output-file", out, "--disable-tqdm",
            "--disable-stream", *RANDOM_IDS, "--num-prompts", 4, "--random-input-len", 32, "--random-output-len", 12,
        ],
        tmp_path,
    )
    (record,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert record["completed"] == 4
    assert record["total_output_tokens"] == 48
