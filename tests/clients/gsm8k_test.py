"""sglang's own accuracy programs: few_shot_gsm8k over /generate, and run_eval over each of its three ways to ask.

Their data set is held-out word problems in GSM8K's format. The programs put words around them that the model was not
trained on, and which cost it a fifth of them or less. Each accuracy must be the one that comes of asking the same prompts
with the OpenAI client and looking for the right number at its end.
"""

import json
import re

import pytest

from tests.clients.environment import run
from tests.e2e import cluster as clusters
from tools.eval import task_files

pytestmark = pytest.mark.large
COUNT = 24
STOPS = ["Question", "Assistant:", "<|separator|>"]  # the programs' own


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gsm8k")
    task_files.write(folder, COUNT)
    return folder / "gsm8k.jsonl"


def records(data):
    return [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]


def is_right(record, answer):
    """Whether the last number is the right one, as the programs look for it in answers of whole numbers."""
    numbers = re.findall(r"\d+", answer.replace(",", ""))
    return bool(numbers) and int(numbers[-1]) == int(record["answer"].rsplit("#### ", 1)[1])


def accuracy_by_completions(cluster, data):
    right = 0
    with cluster.openai() as client:
        for record in records(data):
            answer = client.completions.create(
                model=clusters.MODEL, prompt=f"Question: {record['question']}\nAnswer:", temperature=0, max_tokens=300,
                stop=STOPS,
            )
            right += is_right(record, answer.choices[0].text)
    return right / COUNT


def accuracy_by_chat(cluster, data):
    right = 0
    with cluster.openai() as client:
        for record in records(data):
            answer = client.chat.completions.create(
                model=clusters.MODEL, temperature=0, max_tokens=300,
                messages=[{"role": "user", "content": f"Question: {record['question']}\nAnswer:"}],
            )
            right += is_right(record, answer.choices[0].message.content)
    return right / COUNT


def number_after(name, printed):
    return float(re.search(rf"^{re.escape(name)}: ([0-9.]+)", printed, re.MULTILINE).group(1))


def test_few_shot_gsm8k(cluster, data, tmp_path):
    host, port = cluster.url.removeprefix("http://").split(":")
    printed = run(
        "sglang",
        [
            "-m", "sglang.test.few_shot_gsm8k", "--host", host, "--port", port, "--data-path", data,
            "--num-questions", COUNT, "--num-shots", 0, "--max-new-tokens", 300, "--parallel", 8,
        ],
        tmp_path,
    )
    assert number_after("Accuracy", printed) == pytest.approx(accuracy_by_completions(cluster, data), abs=6e-4)
    assert 0 < number_after("Accuracy", printed) < 1, "some right and some not: an equal score is no accident"
    assert number_after("Output throughput", printed) > 0


def test_few_shot_gsm8k_with_shots(cluster, data, tmp_path):
    """Five shots, its default: it has the common prefix computed first, by a request for no token at all. The model was
    not trained to read shots; its accuracy says nothing."""
    host, port = cluster.url.removeprefix("http://").split(":")
    printed = run(
        "sglang",
        [
            "-m", "sglang.test.few_shot_gsm8k", "--host", host, "--port", port, "--data-path", data,
            "--num-questions", 8, "--max-new-tokens", 60,
        ],
        tmp_path,
    )
    assert 0 <= number_after("Accuracy", printed) <= 1


@pytest.mark.parametrize("api", ["chat", "completion", "generate"])
def test_run_eval(cluster, data, tmp_path, api):
    printed = run(
        "sglang",
        [
            "-m", "sglang.test.run_eval", "--base-url", cluster.url, "--eval-name", "gsm8k", "--gsm8k-data-path", data,
            "--num-shots", 0, "--num-examples", COUNT, "--num-threads", 8, "--max-tokens", 300, "--api", api,
        ],
        tmp_path,
    )
    assert "retry" not in printed and "Bad Request" not in printed
    expected = accuracy_by_chat(cluster, data) if api == "chat" else accuracy_by_completions(cluster, data)
    assert number_after("Score", printed) == pytest.approx(expected, abs=6e-4)
    print(f"{api}: {expected:.3f} of {COUNT}")
    assert expected >= 0.7, "an equal score is no accident"


def test_run_eval_repeated_and_thinking(cluster, data, tmp_path):
    printed = run(
        "sglang",
        [
            "-m", "sglang.test.run_eval", "--base-url", cluster.url, "--eval-name", "gsm8k", "--gsm8k-data-path", data,
            "--num-shots", 0, "--num-examples", 8, "--num-threads", 4, "--max-tokens", 300, "--repeat", 2,
            "--thinking-mode", "deepseek-v3",
        ],
        tmp_path,
    )
    scores = json.loads(re.search(r"^Scores: (\[.*\])", printed, re.MULTILINE).group(1).replace("'", '"'))
    assert len(scores) == 2 and scores[0] == scores[1], "greedy answers repeat"
    assert number_after("Repeat", printed.replace("Repeat: 2, mean", "Repeat")) == pytest.approx(float(scores[0]))
