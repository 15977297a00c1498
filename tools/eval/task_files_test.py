"""What task_files.py writes: the answers are right by arithmetic that reads the questions, not by the generator's."""

import json
import re

from tools.eval import task_files

NUMBER = re.compile(r"\d+")


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answer_of(question):
    """The right number of a word problem, found from its words."""
    a, b = (int(number) for number in NUMBER.findall(question))
    if "% off" in question:
        assert a * b % 100 == 0
        return a * b // 100
    if "gives" in question and "of them" in question:
        return a - b
    if "boxes with" in question:
        return a * b
    return a + b


def test_every_answer_is_right_and_every_file_tells_the_same_tasks(tmp_path):
    task_files.write(tmp_path, count=60)
    gsm8k, problems, words = (records(tmp_path / name)
                              for name in ("gsm8k.jsonl", "problems.jsonl", "word_problems.jsonl"))
    shared = json.loads((tmp_path / "sharegpt.json").read_text(encoding="utf-8"))
    assert len(gsm8k) == len(problems) == len(words) == len(shared) == 60
    for short, problem, word, conversation in zip(gsm8k, problems, words, shared):
        value = answer_of(short["question"])
        assert short["answer"].endswith(f"\n#### {value}")
        assert problem["expected_answer"] == str(value)
        assert NUMBER.findall(word["answer"]) == [str(value)]
        asked = {short["question"], problem["problem"], word["question"], conversation["conversations"][0]["value"]}
        assert len(asked) == 1


def test_one_of_four_sums_is_right(tmp_path):
    task_files.write(tmp_path, count=40)
    for record in records(tmp_path / "which_sum.jsonl"):
        assert len(set(record["choices"])) == 4
        right = []
        for number, choice in enumerate(record["choices"]):
            a, b, value = map(int, NUMBER.findall(choice))
            right += [number] if a + b == value else []
        assert right == [record["answer"]]


def test_a_seed_says_all(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        task_files.write(tmp_path / name, count=5, seed=seed)
    a, b, c = ((tmp_path / name / "gsm8k.jsonl").read_text() for name in "abc")
    assert a == b != c
