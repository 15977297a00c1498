"""sgl-eval: its ping, its bundled AIME set with answers cut short, and a task file of ours.

AIME is far beyond checkpoints/tandem-tiny: what is tested is the protocol, so that scores are zero and all figures that
the program reads from answers (tokens, reasoning tokens, finish reasons) are those that were asked for.
"""

import json
from pathlib import Path

import pytest

from tests.clients.environment import python, run
from tests.e2e import cluster as clusters
from tools.eval import task_files

pytestmark = pytest.mark.large


def sgl_eval(cluster, arguments, folder):
    program = Path(python("sgl_eval")).with_name("sgl-eval")
    return run("sgl_eval", [program, *arguments, "--base-url", cluster.url + "/v1"], folder)


def evaluate(cluster, arguments, folder):
    """(metrics.json, the predictions of all repeats)"""
    sgl_eval(cluster, ["run", *arguments, "--out-dir", folder / "out"], folder)
    (results,) = (folder / "out").iterdir()
    predictions = [
        json.loads(line) for path in sorted(results.glob("output-rs*.jsonl")) for line in path.read_text().splitlines()
    ]
    return json.loads((results / "metrics.json").read_text()), predictions


def test_ping(cluster, tmp_path):
    printed = sgl_eval(cluster, ["ping", "--prompt", "What is 15% of 240?"], tmp_path)
    fields = dict(line.split(":", 1) for line in printed.splitlines() if " : " in line or ": " in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    assert fields["model"] == clusters.MODEL
    assert int(fields["completion_tokens"]) == 64, "the program's own limit, far before the answer's end"
    assert fields["finish_reason"] == "length"
    assert "15% of 240 is 15 * 240 / 100." in printed


@pytest.mark.parametrize("name", ["aime24", "aime25", "aime26"])
def test_aime_cut_short(cluster, tmp_path, name):
    before = cluster.router.metric("tandem_generation_tokens_total")
    metrics, predictions = evaluate(
        cluster, [name, "--num-examples", 6, "--n-repeats", 2, "--max-tokens", 40, "--num-threads", 12], tmp_path
    )
    cluster.wait_at_rest()
    assert metrics["model"] == clusters.MODEL
    assert metrics["aggregate"]["error_rate"] == 0
    assert len(predictions) == 12
    for answer in predictions:
        assert answer["finish_reason"] in ("length", "stop")
        assert answer["num_generated_tokens"] <= 40
        assert 0 < answer["num_reasoning_tokens"] <= answer["num_generated_tokens"], "it thinks by default"
        assert answer["reasoning_content"]
        if answer["finish_reason"] == "length":
            assert answer["num_generated_tokens"] == 40
    generated = sum(answer["num_generated_tokens"] for answer in predictions)
    assert metrics["total_completion_tokens"] == generated
    assert cluster.router.metric("tandem_generation_tokens_total") - before == generated


def test_a_task_file_of_ours_to_the_end_of_its_answers(cluster, tmp_path):
    """Right answers without the box that this program looks for: what it read is compared with the right numbers."""
    task_files.write(tmp_path / "tasks", count=10)
    prompt = tmp_path / "plain.yaml"
    prompt.write_text('user: "{problem}"\n')
    metrics, predictions = evaluate(
        cluster,
        ["gsm8k", "--from-dataset", tmp_path / "tasks" / "problems.jsonl", "--prompt", prompt, "--max-tokens", 300],
        tmp_path,
    )
    assert metrics["aggregate"]["error_rate"] == 0
    assert metrics["aggregate"]["stop_rate"] == 1
    right = [f"The answer is {answer['expected_answer']} " in answer["generation"] for answer in predictions]
    assert len(right) == 10
    print(f"{sum(right)} of {len(right)} answers are right")
    assert sum(right) >= 8
