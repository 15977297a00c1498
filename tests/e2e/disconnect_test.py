"""A client that leaves takes its request with it wherever that is; one that only stops sending is still served.

The times printed are what was measured; the bounds asserted are those that a busy machine keeps, too.
"""

import json
import time

import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain, request
from tests.e2e.cluster import wait_until
from tests.e2e.raw_http import RawHttp, events

LONG = 6000  # tokens: many seconds
# About 5,000 tokens, in steps of 16: many seconds of prefill.
LONG_PROMPT = [{"role": "user", "content": "How many days are there in a week? There are seven days. " * 300}]


def chat(**fields):
    body = request(**fields)
    return body | body.pop("extra_body")


def fin(connection):
    connection.close()


def reset(connection):
    connection.reset()


@pytest.fixture(scope="module")
def slow_prefill(micro, tmp_path_factory):
    from tests.e2e.cluster import Cluster, Options

    options = Options(chunked_prefill_size=16)
    with Cluster(tmp_path_factory.mktemp("disconnect") / "cluster", micro, options) as cluster:
        yield cluster


@pytest.mark.parametrize("leave", [fin, reset])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_leaving_during_a_long_prefill_ends_it(slow_prefill, leave, stream):
    cluster = slow_prefill
    cluster.wait_at_rest()
    computed = cluster.prefill.metric("tandem_prompt_tokens_total")
    connection = RawHttp(cluster.url)
    connection.post(chat(messages=LONG_PROMPT, max_tokens=4, stream=stream))
    wait_until(
        lambda: cluster.prefill.metric("tandem_prompt_tokens_total") > computed, lambda: "the first chunk of the prompt"
    )
    left = time.monotonic()
    leave(connection)
    wait_until(lambda: not cluster.prefill.held(), lambda: f"prefill holds {cluster.prefill.held()}", 5)
    freed = time.monotonic() - left
    cluster.wait_at_rest(seconds=2)
    print(f"prefill's pages were free {1000 * freed:.0f} ms after the client left")
    assert cluster.prefill.metric("tandem_prompt_tokens_total") - computed < 4000, "most of it was never computed"
    assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_shuts_its_sending_side_during_the_prefill_is_served(slow_prefill, stream):
    messages = [{"role": "user", "content": LONG_PROMPT[0]["content"][:6000]}]
    expected = plain(slow_prefill.openai(), messages=messages, max_tokens=4)
    with RawHttp(slow_prefill.url) as connection:
        connection.post(chat(messages=messages, max_tokens=4, stream=stream))
        wait_until(slow_prefill.prefill.held, lambda: "a prompt at prefill")
        connection.half_close()
        response = connection.response()
    assert response.status == 200
    if not stream:
        assert json.loads(response.body)["choices"][0]["message"]["content"] == expected.content
        return
    told = list(events(response.body))
    assert told[-1] == "[DONE]"
    deltas = [choice["delta"].get("content") or "" for e in told[:-1] for choice in json.loads(e)["choices"]]
    assert "".join(deltas) == expected.content


def test_a_client_that_shuts_its_sending_side_inside_a_stream_is_served(cluster):
    with RawHttp(cluster.url) as connection:
        connection.post(chat(messages=LONG_QUESTION, max_tokens=200, stream=True))
        stream = connection.stream()
        begun = b"".join(stream.readline() for _ in range(6))
        connection.half_close()
        told = list(events(begun + stream.read()))
    reasons = [choice["finish_reason"] for e in told[:-1] for choice in json.loads(e)["choices"]]
    assert told[-1] == "[DONE]" and reasons[-1] == "length"


@pytest.mark.parametrize("leave", [fin, reset])
def test_leaving_inside_a_stream_frees_every_page(cluster, leave):
    connection = RawHttp(cluster.url)
    connection.post(chat(messages=LONG_QUESTION, max_tokens=LONG, stream=True))
    stream = connection.stream()
    for _ in range(6):
        stream.readline()
    generated = cluster.decode.metric("tandem_generation_tokens_total")
    left = time.monotonic()
    leave(connection)
    wait_until(lambda: not cluster.decode.held(), lambda: f"decode holds {cluster.decode.held()}", 2)
    print(f"decode's pages were free {1000 * (time.monotonic() - left):.0f} ms after the client left")
    cluster.wait_at_rest(seconds=2)
    assert cluster.decode.metric("tandem_generation_tokens_total") - generated < LONG / 2


def test_the_next_turn_of_a_client_that_left_is_not_held_up_by_the_last(cluster):
    """The old turn's steps stop, the new one gets the tokens that it gets alone."""
    turn = QUESTION + [{"role": "assistant", "content": "Rome."}, {"role": "user", "content": "And of France?"}]
    expected = plain(cluster.openai(), messages=turn, max_tokens=24).content
    with RawHttp(cluster.url) as connection:
        connection.post(chat(messages=QUESTION, max_tokens=LONG, stream=True))
        stream = connection.stream()
        while b'"content"' not in stream.readline():
            pass
    assert plain(cluster.openai(), messages=turn, max_tokens=24).content == expected
    wait_until(lambda: not cluster.decode.held(), lambda: f"decode holds {cluster.decode.held()}", 2)
