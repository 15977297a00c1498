"""lm-evaluation-harness over both of its local API models.

Its accuracy must be the one that asking the same questions with the OpenAI client and counting gives.
"""

import json
import re

import pytest
import tokenizers

from tests.clients.conftest import CHECKPOINT
from tests.clients.environment import run
from tests.e2e import cluster as clusters
from tools.eval import task_files

pytestmark = pytest.mark.large
COUNT = 24


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm_eval") / "tasks"
    task_files.write(folder, COUNT)
    return folder


def evaluate(model, cluster, path, task, tasks, folder, further=(), **model_args):
    """(the task's results, its samples in order of the documents)"""
    model_args |= {
        "model": clusters.MODEL, "base_url": cluster.url + path, "num_concurrent": 4, "max_retries": 1,
    }
    run(
        "lm_eval",
        [
            "-m", "lm_eval", "run", "--model", model, "--tasks", task, "--include_path", tasks,
            "--model_args", ",".join(f"{key}={value}" for key, value in model_args.items()),
            "--output_path", folder / "out", "--log_samples", *further,
        ],
        folder,
    )
    (results,) = (folder / "out").rglob("results_*.json")
    (samples,) = (folder / "out").rglob(f"samples_{task}_*.jsonl")
    records = [json.loads(line) for line in samples.read_text().splitlines()]
    return json.loads(results.read_text())["results"][task], sorted(records, key=lambda record: record["doc_id"])


def documents(tasks, task):
    return [json.loads(line) for line in (tasks / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_chat_completions_generate(cluster, tasks, tmp_path):
    results, samples = evaluate(
        "local-chat-completions", cluster, "/v1/chat/completions", "word_problems", tasks, tmp_path,
        further=["--apply_chat_template"], tokenizer_backend="None",
    )
    right = 0
    with cluster.openai() as client:
        for document, sample in zip(documents(tasks, "word_problems"), samples, strict=True):
            asked = client.chat.completions.create(
                model=clusters.MODEL, temperature=0, max_tokens=300,
                messages=[{"role": "user", "content": document["question"]}],
            )
            content = asked.choices[0].message.content
            assert sample["resps"] == [[content]]
            right += content.rsplit("\n", 1)[-1] == document["answer"]
    print(f"{right} of {COUNT} answers are right")
    assert results["exact_match,last_line"] == pytest.approx(right / COUNT)
    assert right >= 0.9 * COUNT


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


def test_completions_generate_from_token_ids(cluster, tasks, tokenizer, tmp_path):
    """Without the chat's marks the model still reads most of the questions."""
    results, samples = evaluate(
        "local-completions", cluster, "/v1/completions", "word_problems", tasks, tmp_path,
        tokenizer_backend="huggingface", tokenizer=CHECKPOINT,
    )
    right = 0
    with cluster.openai() as client:
        for document, sample in zip(documents(tasks, "word_problems"), samples, strict=True):
            ids = tokenizer.encode(document["question"], add_special_tokens=False).ids
            asked = client.completions.create(model=clusters.MODEL, prompt=ids, temperature=0, max_tokens=300)
            assert sample["resps"] == [[asked.choices[0].text]]
            right += re.findall("The answer is .*", asked.choices[0].text)[-1:] == [document["answer"]]
    print(f"{right} of {COUNT} answers are right")
    assert results["exact_match,last_line"] == pytest.approx(right / COUNT)


def test_completions_compare_the_logprobs_of_choices(cluster, tasks, tokenizer, tmp_path):
    results, samples = evaluate(
        "local-completions", cluster, "/v1/completions", "which_sum", tasks, tmp_path,
        tokenizer_backend="huggingface", tokenizer=CHECKPOINT,
    )
    found = [sample["doc"] for sample in samples]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, documents(tasks, "which_sum")))
    # Its log writes numbers and booleans as texts.
    told = [[(float(logprob), str(greedy) == "True") for logprob, greedy in s["filtered_resps"]] for s in samples]
    chosen = [max(range(4), key=lambda i: choices[i][0]) for choices in told]
    right = sum(choice == document["answer"] for choice, document in zip(chosen, found, strict=True))
    print(f"{right} of {COUNT} choices are right")
    assert results["acc,none"] == pytest.approx(right / COUNT)
    assert right >= 0.9 * COUNT
    # At most one choice is what the model would say by itself.
    assert all([is_greedy for _, is_greedy in choices].count(True) <= 1 for choices in told)
