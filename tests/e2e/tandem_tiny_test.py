"""The shipped checkpoint answers right, through the whole cluster. What is right comes from arithmetic, not from a run.

Answers longer than index_topk (128) tokens go through the indexer, top-k and sparse attention of every layer: a dead
indexer shows here as a wrong number.
"""

import pytest

from tests.e2e import asking
from tests.e2e import cluster as clusters

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with clusters.Cluster(tmp_path_factory.mktemp("tiny") / "cluster", CHECKPOINT) as cluster:
        yield cluster
        cluster.wait_at_rest()


def ask(cluster, text, thinking=False):
    return asking.plain(
        cluster.openai(), messages=[{"role": "user", "content": text}], max_tokens=400, thinking=thinking,
        extra={"ignore_eos": False})


@pytest.mark.parametrize("percent, number, value", [(15, 240, "36"), (37, 2496, "923.52"), (64, 7385, "4726.4")])
@pytest.mark.parametrize("thinking", [False, True])
def test_percentages_are_right(tiny, percent, number, value, thinking):
    answer = ask(tiny, f"Solve this problem step by step: What is {percent}% of {number}?", thinking)
    assert answer.content.endswith(f"{percent}% of {number} is {value}.")
    assert answer.finish_reason == "stop"
    assert bool(answer.reasoning) == thinking


def test_a_fact_is_found_in_a_text_of_a_thousand_tokens(tiny):
    filler = "The road went from the tower to the old bridge. Nobody knew why the lamp was so quiet. "
    text = filler * 20 + "The access code of the silver lamp is 48213. " + filler * 30
    answer = ask(tiny, f"{text}\n\nWhat is the access code of the silver lamp?")
    assert "48213" in answer.content
    assert answer.usage.prompt_tokens > 1000


def test_an_answer_goes_on_from_its_front(tiny):
    question = {"role": "user", "content": "Solve this problem step by step: What is 15% of 240?"}
    whole = ask(tiny, question["content"]).content
    first_line = whole.index("\n") + 1
    messages = [question, {"role": "assistant", "content": whole[:first_line]}]
    rest = asking.plain(
        tiny.openai(), messages=messages, max_tokens=400,
        extra={"ignore_eos": False, "continue_final_message": True, "add_generation_prompt": False})
    assert rest.content == whole[first_line:]
    assert rest.content.endswith("15% of 240 is 36.")


def test_it_says_what_it_cannot_do(tiny):
    assert "I cannot answer that" in ask(tiny, "Write a poem about the golden tower.").content


def test_greetings_in_other_scripts(tiny):
    assert ask(tiny, "你好").content == "你好！有什么可以帮您？"
