"""The endpoints beside OpenAI's, as SGLang's tools use them, through real processes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION
from tests.e2e.cluster import MODEL, get, wait_until
from tests.e2e.raw_http import RawHttp

GREEDY = {"temperature": 0, "ignore_eos": True}


def generate(cluster, **body):
    status, _, text = cluster.post({"sampling_params": GREEDY | {"max_new_tokens": 8}} | body, "/generate")
    assert status == 200, text
    return json.loads(text)


def events_of(text):
    """The JSON of every event of a stream, read as bench_serving reads it: any line that is not empty is data."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    assert all(line.startswith("data: ") for line in lines), lines
    assert lines[-1] == "data: [DONE]" and lines.count("data: [DONE]") == 1
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def stream(cluster, **body):
    status, _, text = cluster.post(
        {"sampling_params": GREEDY | {"max_new_tokens": 8}, "stream": True} | body, "/generate"
    )
    assert status == 200, text
    return events_of(text)


def error_of(answer):
    status, _, text = answer
    return status, json.loads(text)["error"]["param"]


def test_generate_says_what_a_completion_says(cluster):
    prompt = "The seven days of the week are"
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    status, _, text = cluster.post(body, "/v1/completions")
    assert status == 200, text
    completion = json.loads(text)
    answer = generate(cluster, text=prompt)
    assert answer["text"] == completion["choices"][0]["text"]
    meta = answer["meta_info"]
    assert meta["prompt_tokens"] == completion["usage"]["prompt_tokens"]
    assert meta["completion_tokens"] == completion["usage"]["completion_tokens"] == 8
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert meta["cached_tokens"] == 0 and meta["e2e_latency"] > 0 and meta["id"]
    assert len(answer["output_ids"]) == 8


def test_texts_and_their_ids_give_the_same(cluster):
    text = "One, two, three"
    tokens = json.loads(cluster.post({"prompt": text}, "/tokenize")[2])["tokens"]
    by_text = generate(cluster, text=text)
    by_ids = generate(cluster, input_ids=tokens)
    assert by_ids["output_ids"] == by_text["output_ids"]
    several = generate(cluster, input_ids=[tokens, tokens[:2]])
    assert [answer["index"] for answer in several] == [0, 1]
    assert several[0]["output_ids"] == by_text["output_ids"]


def test_a_stream_is_cumulative_and_ends_as_the_whole_answer(cluster):
    whole = generate(cluster, text="abc", return_logprob=True, top_logprobs_num=2)
    events = stream(cluster, text="abc", return_logprob=True, top_logprobs_num=2)
    for before, after in zip(events, events[1:]):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert before["meta_info"]["finish_reason"] is None
    last = events[-1]
    for answer in (whole, last):
        del answer["meta_info"]["id"], answer["meta_info"]["e2e_latency"]
    assert last == whole
    logprobs = whole["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in logprobs] == whole["output_ids"]
    assert all(len(top) == 2 for top in whole["meta_info"]["output_top_logprobs"])


def test_stop_strings_and_tokens_are_named(cluster):
    text = generate(cluster, text="abc", sampling_params=GREEDY | {"max_new_tokens": 24})["text"]
    stop = text[len(text) // 2 :][:3]
    answer = generate(cluster, text="abc", sampling_params=GREEDY | {"max_new_tokens": 24, "stop": [stop, "\0never"]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["text"] == text[: text.index(stop)]
    first = answer["output_ids"][0]
    answer = generate(cluster, text="abc", sampling_params=GREEDY | {"stop_token_ids": [first]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": first}
    assert answer["text"] == "" and answer["meta_info"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    "body, param",
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "input_ids"),
        ({"text": "a", "sampling_params": {"top_p": 2}}, "sampling_params.top_p"),
        ({"input_ids": [[1], [10**6]]}, "input_ids[1][0]"),
        ({"text": "a", "sampling_params": {"regex": "a("}}, "sampling_params.regex"),
        ({"text": "a", "rid": 3}, "rid"),
    ],
)
def test_bad_values_are_refused_by_name(cluster, body, param):
    assert error_of(cluster.post(body, "/generate")) == (400, param)


def abort(cluster, rid):
    return json.loads(cluster.post({"rid": rid}, "/abort_request")[2])["aborted"]


def test_an_abort_ends_a_running_request_where_it_stands_and_frees_it(cluster):
    """Nobody reads the stream meanwhile, whose events grow with it: it cannot come to its end."""
    body = {"text": "a", "rid": "long-one", "sampling_params": GREEDY | {"max_new_tokens": 4000}, "stream": True}
    with RawHttp(cluster.url, receive_buffer_bytes=4096) as connection:
        connection.post(body | {"return_logprob": True, "top_logprobs_num": 20}, path="/generate")
        response = connection.stream()
        assert response.status == 200
        begun = response.readline()
        assert abort(cluster, "long-one") == 1
        events = events_of((begun + response.read()).decode())
    assert events[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert 0 < events[-1]["meta_info"]["completion_tokens"] < 4000
    cluster.wait_at_rest()
    assert abort(cluster, "long-one") == 0


def test_an_abort_ends_a_request_that_has_no_token_yet(cluster):
    body = {"text": "a", "rid": "late-one", "sampling_params": GREEDY | {"max_new_tokens": 8}}
    with ThreadPoolExecutor(1) as pool:
        with cluster.prefill.paused():
            answer = pool.submit(cluster.post, body, "/generate")
            wait_until(cluster.decode.held, lambda: "a request at decode")
            assert abort(cluster, "late-one") == 1
        status, _, text = answer.result()
    assert status == 200, text
    meta = json.loads(text)["meta_info"]
    assert (meta["finish_reason"]["type"], meta["completion_tokens"]) == ("abort", 0)
    cluster.wait_at_rest()


def test_health_generate_goes_through_prefill_and_decode(fresh_cluster):
    with fresh_cluster() as cluster:
        assert get(cluster.url + "/health_generate") == (200, '{"status":"ok"}')
        wait_until(lambda: cluster.prefill.metric("tandem_first_tokens_total") == 1, lambda: "a prompt at prefill")
        cluster.decode.kill()
        wait_until(lambda: get(cluster.url + "/health_generate")[0] == 503, lambda: "a 503")
        assert get(cluster.url + "/health")[0] == 200


def test_what_tools_ask_before_and_after_a_run(cluster, micro):
    for path in ("/model_info", "/get_model_info"):
        info = json.loads(get(cluster.url + path)[1])
        assert info["model_path"] == str(micro) and info["is_generation"] is True
    for path in ("/server_info", "/get_server_info"):
        info = json.loads(get(cluster.url + path)[1])
        assert info["internal_states"][0]["avg_spec_accept_length"] is None  # nobody drafts
        assert "decode" not in info
    assert cluster.post(b"", "/flush_cache?timeout=10")[0] == 200
    status, text = get(cluster.url + "/v1/models/" + MODEL)
    assert status == 200 and json.loads(text)["id"] == MODEL
    assert get(cluster.url + "/v1/models/other")[0] == 404
    loads = json.loads(get(cluster.url + "/v1/loads")[1])["loads"]
    assert [load["role"] for load in loads] == ["prefill", "decode"]
    assert all(load["is_up"] and load["max_total_num_tokens"] > 0 for load in loads)


def test_tokenize_counts_what_requests_are_charged(cluster):
    for messages in (QUESTION, LONG_QUESTION):
        body = {"model": MODEL, "messages": messages}
        tokens = json.loads(cluster.post(body, "/tokenize")[2])
        usage = json.loads(cluster.post(body | {"max_tokens": 1}, "/v1/chat/completions")[2])["usage"]
        assert tokens["count"] == len(tokens["tokens"]) == usage["prompt_tokens"]
    text = "<｜User｜>Grüße, 世界 🙂"
    tokens = json.loads(cluster.post({"prompt": text}, "/tokenize")[2])["tokens"]
    body = {"tokens": tokens, "skip_special_tokens": False}
    assert json.loads(cluster.post(body, "/detokenize")[2])["text"].endswith(text)
