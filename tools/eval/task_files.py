#!/usr/bin/env python3
"""Writes held-out tasks of tools/train_tiny/tasks in the formats of other people's evaluation programs.

usage: task_files.py FOLDER [--count 50] [--seed 1]
The same seed gives the same files. Every task is a word problem or a sum whose answer is a whole number, so that
programs that look for the last number of an answer find it.

| file | who reads it | a record |
|---|---|---|
| gsm8k.jsonl | sglang's few_shot_gsm8k and run_eval | question, answer: the working, then `#### N` |
| problems.jsonl | sgl-eval run NAME --from-dataset | id, problem, expected_answer |
| sharegpt.json | sglang.bench_serving --dataset-name sharegpt | conversations of a human's and a model's turn |
| word_problems.yaml, .jsonl | lm_eval, a task that generates | question, answer: the sentence |
| which_sum.yaml, .jsonl | lm_eval, a task that compares choices by log-probability | question, choices, answer: index |
"""

import argparse
import json
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train_tiny"))

from tasks import arithmetic  # noqa: E402

SENTENCE = re.compile(r"The answer is (\d+) [a-z]+\.")

GENERATING_TASK = """task: word_problems
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: []
  max_gen_toks: 300
  do_sample: false
filter_list:
  - name: last_line
    filter:
      - function: regex
        regex_pattern: "(The answer is .*)"
        group_select: -1
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""

COMPARING_TASK = """task: which_sum
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def word_problems(rng, count):
    """[(question, working with the sentence as its last line, whole number as text)]"""
    found = []
    while len(found) < count:
        question, reply = (message["content"] for message in arithmetic.word_problem(rng, True, False).messages)
        match = SENTENCE.fullmatch(reply.rsplit("\n", 1)[-1])
        if match:
            found.append((question, reply, match.group(1)))
    return found


def which_sum(rng, count):
    """Questions as the model is asked them in chat, with four sentences to choose from, each wrong one by one digit."""
    records = []
    for _ in range(count):
        document = arithmetic.operation(rng, True, False, "add")
        question, reply = (message["content"] for message in document.messages)
        working, sentence = reply.rsplit("\n", 1)
        head, value = sentence.rsplit(" ", 1)
        value = value.rstrip(".")
        values = {value}
        while len(values) < 4:
            place = rng.randrange(len(value))
            values.add(value[:place] + rng.choice("123456789") + value[place + 1 :])
        choices = sorted(values)
        rng.shuffle(choices)
        records.append({
            "question": f"<｜begin▁of▁sentence｜><｜User｜>{question}<｜Assistant｜></think>{working}\n",
            "choices": [f"{head} {choice}." for choice in choices],
            "answer": choices.index(value),
        })
    return records


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def write(folder, count, seed=1):
    """All files into a folder that exists or is made."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    problems = word_problems(rng, count)
    write_jsonl(folder / "gsm8k.jsonl", [
        {"question": question, "answer": f"{working}\n#### {value}"} for question, working, value in problems])
    write_jsonl(folder / "problems.jsonl", [
        {"id": f"word-{number}", "problem": question, "expected_answer": value}
        for number, (question, _, value) in enumerate(problems)])
    (folder / "sharegpt.json").write_text(json.dumps([
        {"id": f"word-{number}", "conversations": [{"from": "human", "value": question},
                                                   {"from": "gpt", "value": working}]}
        for number, (question, working, _) in enumerate(problems)], ensure_ascii=False), encoding="utf-8")
    write_jsonl(folder / "word_problems.jsonl", [
        {"question": question, "answer": working.rsplit("\n", 1)[-1]} for question, working, _ in problems])
    (folder / "word_problems.yaml").write_text(GENERATING_TASK.format(file=folder / "word_problems.jsonl"))
    write_jsonl(folder / "which_sum.jsonl", which_sum(rng, count))
    (folder / "which_sum.yaml").write_text(COMPARING_TASK.format(file=folder / "which_sum.jsonl"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"--count {arguments.count}: at least 1")
    write(arguments.folder, arguments.count, arguments.seed)


if __name__ == "__main__":
    main()
