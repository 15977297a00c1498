"""Log-probabilities of prompts: prefill's are decode's, bit for bit, and what lm-eval asks for has its shape."""

import json

import pytest

from tests.e2e import cluster as clusters
from tests.e2e.cluster import MODEL

PROMPT = "The seven days of the week are Monday, Tuesday"


def complete(cluster, **body):
    body = {"model": MODEL, "temperature": 0, "ignore_eos": True} | body
    status, _, text = cluster.post(body, "/v1/completions")
    assert status == 200, text
    return json.loads(text)


def tokens_of(cluster, text):
    return json.loads(cluster.post({"prompt": text}, "/tokenize")[2])["tokens"]


def generate(cluster, **body):
    status, _, text = cluster.post({"return_logprob": True} | body, "/generate")
    assert status == 200, text
    return json.loads(text)


def generated(cluster, ids, max_new_tokens):
    """(ids, logprobs) that decode gives greedily behind the ids."""
    answer = generate(
        cluster,
        input_ids=ids,
        sampling_params={"temperature": 0, "ignore_eos": True, "max_new_tokens": max_new_tokens},
    )
    return answer["output_ids"], [logprob for logprob, _, _ in answer["meta_info"]["output_token_logprobs"]]


@pytest.fixture(scope="module")
def chunked_cluster(micro, tmp_path_factory):
    """Prefill in chunks of 7: every boundary falls elsewhere than in the shared cluster's."""
    options = clusters.Options(chunked_prefill_size=7)
    with clusters.Cluster(tmp_path_factory.mktemp("chunked") / "cluster", micro, options) as cluster:
        yield cluster


def test_a_prompts_logprobs_are_those_that_its_tokens_had_as_an_answer(cluster, chunked_cluster):
    """Beyond v32-micro's index_topk of 16, so that sparse attention takes part."""
    ids = tokens_of(cluster, PROMPT)
    answer, logprobs = generated(cluster, ids, 60)
    for asked in (cluster, chunked_cluster):
        choice = complete(asked, prompt=ids + answer, echo=True, logprobs=3, max_tokens=0)["choices"][0]
        shown = choice["logprobs"]["token_logprobs"]
        assert len(shown) == len(ids) + len(answer)
        assert shown[0] is None and choice["logprobs"]["top_logprobs"][0] is None
        assert shown[len(ids) :] == logprobs
        by_generate = generate(
            asked,
            input_ids=ids + answer,
            logprob_start_len=0,
            top_logprobs_num=3,
            sampling_params={"max_new_tokens": 0},
        )["meta_info"]["input_token_logprobs"]
        assert [logprob for logprob, _, _ in by_generate] == shown
        assert [token for _, token, _ in by_generate] == ids + answer


def test_what_lm_eval_asks_for(cluster):
    """As its local-completions model: ids, echo, one token more than it wants, and the likeliest token at each."""
    context, continuation = tokens_of(cluster, "One two three"), tokens_of(cluster, " four five")[1:]
    prompts = [context + continuation, context + continuation[:2]]
    completion = complete(cluster, prompt=prompts, echo=True, logprobs=1, max_tokens=1, seed=1234)
    assert completion["usage"]["completion_tokens"] == 2
    for choice, prompt in zip(completion["choices"], prompts):
        logprobs = choice["logprobs"]
        assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(prompt) + 1
        for token, logprob, top in list(
            zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
        )[len(context) : -1]:
            assert logprob <= 0 and top[token] == logprob
            assert max(top.values()) >= logprob


def test_an_echo_is_the_text_and_its_tokens_stand_where_they_are(cluster):
    choice = complete(cluster, prompt=PROMPT, echo=True, logprobs=0, max_tokens=4)["choices"][0]
    assert choice["text"].startswith(PROMPT)
    offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
    assert offsets[0] == offsets[1] == 0, "the beginning-of-sentence token is no part of the text"
    assert offsets == sorted(offsets)
    num_echoed = len(tokens_of(cluster, PROMPT))
    for offset, token in list(zip(offsets, tokens, strict=True))[1:num_echoed]:
        assert PROMPT[offset:].startswith(token)
    assert offsets[num_echoed] == len(PROMPT)


def test_a_stream_echoes_with_logprobs_once_for_each_choice(cluster):
    body = {"model": MODEL, "prompt": [PROMPT, "ab"], "n": 2, "echo": True, "logprobs": 1, "max_tokens": 3}
    body |= {"stream": True, "temperature": 0, "ignore_eos": True}
    whole = complete(cluster, **(body | {"stream": False}))
    status, _, text = cluster.post(body, "/v1/completions")
    assert status == 200
    texts, logprobs = {}, {}
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + choice["text"]
            if choice["logprobs"] is not None:
                logprobs.setdefault(index, []).extend(choice["logprobs"]["token_logprobs"])
    for choice in whole["choices"]:
        assert texts[choice["index"]] == choice["text"]
        assert logprobs[choice["index"]] == choice["logprobs"]["token_logprobs"]


def test_too_many_are_refused_by_name(cluster):
    for body, path, param in (
        ({"model": MODEL, "prompt": [5] * 3000, "echo": True, "logprobs": 20}, "/v1/completions", "echo"),
        ({"input_ids": [5] * 3000, "return_logprob": True, "top_logprobs_num": 20, "logprob_start_len": 0},)
        + ("/generate", "logprob_start_len"),
        ({"input_ids": [5] * 3, "return_logprob": True, "logprob_start_len": 3}, "/generate", "logprob_start_len"),
    ):
        status, _, text = cluster.post(body, path)
        assert (status, json.loads(text)["error"]["param"]) == (400, param), text


def test_the_best_of_several_are_the_likeliest(cluster):
    hot = {"prompt": PROMPT, "temperature": 1.0, "seed": 3, "max_tokens": 6, "logprobs": 0}
    every = complete(cluster, **hot, n=5)["choices"]

    def mean(choice):
        return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])

    expected = sorted(every, key=mean, reverse=True)[:2]
    answer = complete(cluster, **hot, n=2, best_of=5)
    assert [choice["text"] for choice in answer["choices"]] == [choice["text"] for choice in expected]
    assert answer["usage"]["completion_tokens"] == 30
