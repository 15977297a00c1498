"""The official OpenAI client against the three processes."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain, request, streamed
from tests.e2e.cluster import MODEL
from tests.e2e.held_stream import WIDE


@pytest.fixture
def client(cluster):
    with cluster.openai() as client:
        yield client


@pytest.mark.parametrize("messages", [QUESTION, LONG_QUESTION], ids=["short", "long"])
@pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
def test_a_stream_adds_up_to_the_plain_answer(client, messages, thinking):
    whole = plain(client, messages=messages, thinking=thinking)
    stream = streamed(client, messages=messages, thinking=thinking)
    assert (stream.content, stream.reasoning or "") == (whole.content, whole.reasoning or "")
    assert stream.finish_reason == whole.finish_reason
    assert stream.usage == whole.usage
    assert whole.content or whole.reasoning


def test_a_stream_comes_in_many_pieces(client):
    # Tokens that are ready together leave in one piece: no more than the credit of a stream, 81 of this kind.
    assert streamed(client, max_tokens=800, **WIDE).num_deltas > 8


def test_greedy_answers_repeat(client):
    assert plain(client) == plain(client)


def test_the_same_seed_draws_the_same_tokens_and_another_seed_others(client):
    hot = {"temperature": 1.0, "max_tokens": 16}
    first = plain(client, seed=7, **hot)
    assert plain(client, seed=7, **hot) == first
    assert plain(client, seed=8, **hot).content != first.content


def test_without_a_seed_answers_differ(client):
    answers = {plain(client, temperature=1.0, max_tokens=16).content for _ in range(4)}
    assert len(answers) > 1


def test_a_tiny_top_p_and_top_k_1_are_greedy_at_any_temperature(client):
    greedy = plain(client).content
    assert plain(client, temperature=1.5, top_p=1e-6).content == greedy
    assert plain(client, temperature=1.5, extra={"top_k": 1}).content == greedy


def test_what_a_request_leaves_out_comes_from_the_checkpoints_generation_config(client, cluster):
    """v32-micro says temperature 1 and top_p 0.95."""
    written = plain(client, temperature=1.0, top_p=0.95, seed=21)
    body = request(seed=21)
    body |= body.pop("extra_body")
    del body["temperature"]
    status, _, text = cluster.post(body)
    assert status == 200
    assert json.loads(text)["choices"][0]["message"]["content"] == written.content


@pytest.mark.parametrize("max_tokens", [1, 2, 65])
def test_max_tokens_ends_the_answer_with_reason_length(client, max_tokens):
    answer = plain(client, max_tokens=max_tokens)
    assert answer.finish_reason == "length"
    assert answer.usage.completion_tokens == max_tokens
    assert streamed(client, max_tokens=max_tokens).content == answer.content


def test_a_shorter_answer_is_the_beginning_of_a_longer_one(client):
    short, long = plain(client, max_tokens=5).content, plain(client, max_tokens=40).content
    assert long.startswith(short.rstrip("\ufffd"))


def test_usage_counts_the_tokens(client):
    short, long = plain(client), plain(client, messages=LONG_QUESTION)
    for answer in (short, long):
        usage = answer.usage
        assert usage.completion_tokens == 24
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert long.usage.prompt_tokens > 2 * short.usage.prompt_tokens > 10


def test_thinking_fills_reasoning_content_and_chatting_does_not(client):
    chat = plain(client)
    assert chat.content and chat.reasoning is None
    thinking = plain(client, thinking=True)
    assert thinking.reasoning
    assert "<think>" not in thinking.reasoning + thinking.content
    assert "</think>" not in thinking.reasoning + thinking.content


@pytest.mark.parametrize(
    "switch",
    [{"chat_template_kwargs": {"enable_thinking": True}}, {"thinking": {"type": "enabled"}}, {"reasoning_effort": "high"}],
    ids=["enable_thinking", "thinking", "reasoning_effort"],
)
def test_every_spelling_of_the_thinking_switch_gives_the_same(client, switch):
    assert plain(client, extra=switch) == plain(client, thinking=True)


@pytest.mark.parametrize("run", [plain, streamed])
def test_a_stop_string_cuts_the_answer_before_it(client, run):
    whole = plain(client, max_tokens=48).content
    begin = next(i for i in range(8, len(whole)) if "\ufffd" not in whole[i : i + 3])
    stop = whole[begin : begin + 3]
    answer = run(client, max_tokens=48, stop=[stop, "never to be seen"])
    assert answer.content == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"


def test_a_stop_token_id_ends_the_answer(client, cluster):
    answer = plain(client, max_tokens=200, temperature=1.0, seed=3, extra={"stop_token_ids": list(range(300, 364))})
    assert answer.finish_reason == "stop"
    assert answer.usage.completion_tokens < 200


def test_an_empty_answer_is_possible(client):
    first = plain(client, max_tokens=12).content
    answer = plain(client, max_tokens=12, stop=first[:1])
    assert answer.content == "" and answer.finish_reason == "stop"


def test_models_lists_the_served_model(client):
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**request() | {"model": "gpt-4"})
    assert "gpt-4" in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages"),
        ({"stop": [""]}, "stop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_field_is_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request() | fields)
    assert caught.value.param.startswith(param)


@pytest.mark.parametrize("body", [b"", b"hello", b"{", b"[]", b'{"model": "\xff"}'])
def test_a_body_that_is_no_request_is_refused(cluster, body):
    status, _, text = cluster.post(body)
    assert status == 400
    assert '"error"' in text


def test_a_prompt_beyond_the_context_is_refused_and_says_the_limit(client, cluster):
    with pytest.raises(openai.BadRequestError) as caught:
        plain(client, messages=[{"role": "user", "content": "seven days " * 6000}])
    assert str(cluster.options.context_length) in caught.value.message


def test_text_that_is_no_ascii_is_answered(client):
    answer = plain(client, messages=[{"role": "user", "content": "Grüße, 世界 🙂 e\u0301 \u202e"}])
    assert answer.usage.completion_tokens == 24


def test_many_clients_at_once_get_what_each_would_get_alone(cluster):
    questions = [[{"role": "user", "content": f"How many days are there in {n} weeks? " * n}] for n in range(1, 13)]
    with cluster.openai() as client, ThreadPoolExecutor(len(questions)) as pool:
        together = list(pool.map(lambda q: streamed(client, messages=q).content, questions))
        alone = [plain(client, messages=q).content for q in questions]
    assert together == alone
