"""What requests may ask for, by the official OpenAI client: choices, logprobs, biases, seeds, completions, and errors
as its exceptions."""

import json

import openai
import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain, request, taken_apart
from tests.e2e.cluster import MODEL
from tests.e2e.held_stream import HeldStream

HOT = {"temperature": 1.0, "seed": 7}
EOS = 1


@pytest.fixture
def client(cluster):
    with cluster.openai() as client:
        yield client


@pytest.fixture(scope="module")
def hidden(micro):
    """Special tokens, which are never part of a text, but for the marks that are read there."""
    added = json.loads((micro / "tokenizer.json").read_text())["added_tokens"]
    return {token["content"] for token in added if token["special"]} - {"<think>", "</think>", "｜DSML｜"}


def choices_of_stream(stream):
    """index -> (text, logprob entries, finish_reason) of a chat stream, and its one usage."""
    texts, entries, finishes, usages = {}, {}, {}, []
    for chunk in stream:
        if chunk.usage is not None:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            assert choice.index not in finishes, "news after the end of a choice"
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.logprobs is not None:
                entries.setdefault(choice.index, []).extend(choice.logprobs.content)
            if choice.finish_reason:
                finishes[choice.index] = choice.finish_reason
    (usage,) = usages
    return {index: (texts[index], entries.get(index), finishes[index]) for index in texts}, usage


def text_of(entries, hidden):
    """The answer's text by the bytes of its logprobs."""
    return b"".join(bytes(entry.bytes) for entry in entries if entry.token not in hidden).decode(errors="replace")


# ---- n ----


def test_choices_differ_repeat_and_begin_with_the_one_that_comes_alone(client):
    first = client.chat.completions.create(**request(n=3, **HOT))
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in first.choices]
    assert len(set(texts)) == 3
    again = client.chat.completions.create(**request(n=3, **HOT))
    assert [choice.message.content for choice in again.choices] == texts
    assert plain(client, **HOT).content == texts[0]


def test_choices_are_counted_together_and_their_prompt_once(client):
    one, three = plain(client, **HOT).usage, client.chat.completions.create(**request(n=3, **HOT)).usage
    assert three.prompt_tokens == one.prompt_tokens
    assert three.completion_tokens == 3 * one.completion_tokens


@pytest.mark.parametrize("messages", [QUESTION, LONG_QUESTION], ids=["short", "long"])
def test_a_stream_of_choices_adds_up_to_the_whole_answer(client, messages):
    fields = request(messages=messages, n=2, logprobs=True, top_logprobs=2, **HOT)
    whole = client.chat.completions.create(**fields)
    streamed, usage = choices_of_stream(
        client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    )
    assert taken_apart(usage)[0] == taken_apart(whole.usage)[0]
    for choice in whole.choices:
        text, entries, finish = streamed[choice.index]
        assert (text, finish) == (choice.message.content, choice.finish_reason)
        assert entries == choice.logprobs.content


def test_a_stop_string_of_one_choice_ends_that_choice_alone(client, cluster):
    texts = [c.message.content for c in client.chat.completions.create(**request(n=2, max_tokens=48, **HOT)).choices]
    whole, other = texts
    begin = next(
        i for i in range(4, len(whole)) if "\ufffd" not in whole[i : i + 3] and whole[i : i + 3] not in other
    )
    stop = whole[begin : begin + 3]
    stopped = client.chat.completions.create(**request(n=2, max_tokens=48, stop=[stop], **HOT)).choices
    assert (stopped[0].message.content, stopped[0].finish_reason) == (whole[: whole.index(stop)], "stop")
    assert (stopped[1].message.content, stopped[1].finish_reason) == (other, "length")


# ---- Logprobs ----


def test_every_counted_token_has_its_logprob(client, hidden):
    answer = client.chat.completions.create(**request(logprobs=True, top_logprobs=3))
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert text_of(entries, hidden) == answer.choices[0].message.content
    for entry in entries:
        assert entry.logprob <= 0
        assert [top.logprob for top in entry.top_logprobs] == sorted((t.logprob for t in entry.top_logprobs), reverse=True)
        assert len(entry.top_logprobs) == 3
        assert (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob) == (entry.token, entry.logprob), "greedy"


def test_logprobs_cover_the_reasoning_too(client, hidden):
    answer = client.chat.completions.create(**request(thinking=True, logprobs=True))
    message = answer.choices[0].message
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert text_of(entries, hidden).replace("</think>", "", 1) == message.reasoning_content + (message.content or "")


def test_logprobs_are_of_the_model_not_of_the_sampling(client):
    """The same tokens have the same logprobs whatever the temperature, the filters and biases that drew them."""
    greedy = client.chat.completions.create(**request(logprobs=True)).choices[0].logprobs.content
    hot = request(logprobs=True, temperature=1.7, extra={"top_k": 1})
    assert client.chat.completions.create(**hot).choices[0].logprobs.content == greedy


def test_no_logprob_of_what_a_stop_string_cut(client, hidden):
    whole = plain(client, max_tokens=48).content
    begin = next(i for i in range(8, len(whole)) if "\ufffd" not in whole[i : i + 3])
    answer = client.chat.completions.create(**request(max_tokens=48, stop=[whole[begin : begin + 3]], logprobs=True))
    shown = answer.choices[0].message.content
    entries = answer.choices[0].logprobs.content
    assert text_of(entries, hidden).startswith(shown)
    assert len(text_of(entries[:-1], hidden)) <= len(shown), "only the last token may reach into the stop"
    assert len(entries) <= answer.usage.completion_tokens


# ---- Biases and lengths ----


def test_a_bias_decides_the_token(client):
    answer = client.chat.completions.create(**request(max_tokens=4, logit_bias={"65": 100}, logprobs=True))
    tokens = {entry.token for entry in answer.choices[0].logprobs.content}
    assert len(tokens) == 1
    banned = client.chat.completions.create(**request(max_tokens=1, logprobs=True)).choices[0].logprobs.content[0]
    (other,) = client.chat.completions.create(
        **request(max_tokens=1, logit_bias={"65": -100}, logprobs=True)
    ).choices[0].logprobs.content
    assert other.logprob <= banned.logprob


def test_min_tokens_holds_the_end_back(client):
    fields = {"max_tokens": 12, "logit_bias": {str(EOS): 100}}
    body = request(**fields)
    body["extra_body"] = {}
    empty = client.chat.completions.create(**body)
    assert (empty.choices[0].message.content, empty.choices[0].finish_reason) == ("", "stop")
    assert empty.usage.completion_tokens == 1
    body["extra_body"] = {"min_tokens": 5}
    held = client.chat.completions.create(**body)
    assert held.choices[0].finish_reason == "stop"
    assert held.usage.completion_tokens == 6, "five tokens, then the end"


def test_penalties_change_what_repeats(client):
    """A greedy answer of random weights falls into a loop; each penalty gets it out."""
    plain_text = plain(client, max_tokens=64).content
    for fields in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra": {"repetition_penalty": 2}}):
        assert plain(client, max_tokens=64, **fields).content != plain_text, fields


def test_one_token_and_the_end_at_once(client):
    for n in (1, 2):
        for stream in (False, True):
            fields = request(max_tokens=1, n=n, logprobs=True)
            if stream:
                choices, usage = choices_of_stream(
                    client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
                )
                assert all(finish == "length" and len(entries) == 1 for _, entries, finish in choices.values())
            else:
                answer = client.chat.completions.create(**fields)
                usage = answer.usage
                assert all(c.finish_reason == "length" and len(c.logprobs.content) == 1 for c in answer.choices)
            assert usage.completion_tokens == n


# ---- Completions ----


def completion(prompt, **fields):
    body = {"ignore_eos": True} | fields.pop("extra", {})
    return {"model": MODEL, "prompt": prompt, "temperature": 0, "extra_body": body} | fields


PROMPTS = {
    "text": "What is the capital",
    "texts": ["What is", "How many days are there in a week? " * 8],
    "ids": [0, 300, 301, 302],
    "lists of ids": [[0, 300], [0, 301, 302, 303]],
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
def test_every_form_of_a_prompt_is_answered_as_each_would_be_alone(client, prompt):
    is_list = isinstance(prompt, list) and not isinstance(prompt[0], int)
    singles = prompt if is_list else [prompt]
    alone = [client.completions.create(**completion(p, max_tokens=8)) for p in singles]
    together = client.completions.create(**completion(prompt, max_tokens=8))
    assert [choice.text for choice in together.choices] == [answer.choices[0].text for answer in alone]
    assert [choice.index for choice in together.choices] == list(range(len(singles)))
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(together.usage, field) == sum(getattr(answer.usage, field) for answer in alone)


def test_completions_have_16_tokens_by_default(client):
    answer = client.completions.create(**completion("a"))
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (16, "length")


def test_a_completion_stream_adds_up_to_the_whole_answer(client):
    fields = completion(["one", "two"], n=2, max_tokens=10, logprobs=2, **HOT)
    whole = client.completions.create(**fields)
    texts, tokens, finishes, usages = {}, {}, {}, []
    for chunk in client.completions.create(**fields, stream=True, stream_options={"include_usage": True}):
        if chunk.usage is not None:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.logprobs is not None:
                tokens.setdefault(choice.index, []).extend(choice.logprobs.tokens)
            if choice.finish_reason:
                finishes[choice.index] = choice.finish_reason
    assert usages == [whole.usage]
    assert [texts[i] for i in range(4)] == [choice.text for choice in whole.choices]
    assert [tokens[i] for i in range(4)] == [choice.logprobs.tokens for choice in whole.choices]
    assert [finishes[i] for i in range(4)] == [choice.finish_reason for choice in whole.choices]


def test_completion_logprobs_are_parallel_and_say_where_each_token_begins(client, hidden):
    (choice,) = client.completions.create(**completion("one", max_tokens=10, logprobs=2)).choices
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 10
    assert logprobs.text_offset == sorted(logprobs.text_offset) and logprobs.text_offset[0] == 0
    for token, logprob, top, offset in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset, strict=True
    ):
        assert top[token] == logprob == max(top.values())
        if not token.startswith("bytes:") and token not in hidden:
            assert choice.text[offset:].startswith(token)


def test_an_echoed_prompt_begins_each_answer(client):
    without = client.completions.create(**completion("What is", max_tokens=4)).choices[0].text
    echoed = client.completions.create(**completion("What is", max_tokens=4, echo=True)).choices[0].text
    assert echoed == "What is" + without


def test_completions_stop_and_repeat_by_seed(client):
    whole = client.completions.create(**completion("one", max_tokens=40, **HOT)).choices[0].text
    assert client.completions.create(**completion("one", max_tokens=40, **HOT)).choices[0].text == whole
    begin = next(i for i in range(4, len(whole)) if "\ufffd" not in whole[i : i + 3])
    stop = whole[begin : begin + 3]
    stopped = client.completions.create(**completion("one", max_tokens=40, stop=stop, **HOT)).choices[0]
    assert (stopped.text, stopped.finish_reason) == (whole[: whole.index(stop)], "stop")


# ---- Errors ----


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias[5]"),
        ({"logit_bias": {"100000000": 1}}, "logit_bias[100000000]"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty"),
        ({"extra_body": {"min_p": 2}}, "min_p"),
        ({"extra_body": {"min_tokens": 100}}, "min_tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_chat_field_is_a_bad_request_that_names_it(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request() | fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1, 10**8]}, "prompt[1]"),
        ({"prompt": ["x"] * 65, "n": 2}, "n"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"prompt": "seven days " * 6000}, "prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_completion_field_is_a_bad_request_that_names_it(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**completion("x") | fields)
    assert caught.value.param == param


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(**completion("x") | {"model": "gpt-4"})


def test_too_many_requests_are_a_rate_limit_error(fresh_cluster):
    limits = {"max_inflight_requests": 1, "max_queued_requests": 0}
    with fresh_cluster(router=limits) as cluster, cluster.openai() as client:
        stream = HeldStream(cluster).begin()
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(**completion("x"))
        assert int(caught.value.response.headers["retry-after"]) >= 1
        stream.close()
        cluster.wait_at_rest()
