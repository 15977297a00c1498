"""A client that leaves takes its request with it wherever that is; one that only stops sending is still served.

The times printed are what was measured; the bounds asserted are those that a busy machine keeps, too.
"""

import json
import time

import pytest

from tests.e2e.asking import QUESTION, chat, plain
from tests.e2e.cluster import Cluster, Options, wait_until
from tests.e2e.held_stream import LONG, HeldStream, finish_reason
from tests.e2e.raw_http import RawHttp, events

SENTENCE = "How many days are there in a week? There are seven days. "
# More than 40,000 tokens, in steps of 16: a minute of prefill, seconds on the fastest machine.
LONG_PROMPT = [{"role": "user", "content": SENTENCE * 2800}]
LONG_PROMPT_TOKENS_MIN = 40000


@pytest.fixture(scope="module")
def slow_prefill(micro, tmp_path_factory):
    options = Options(chunked_prefill_size=16, context_length=65536, kv_cache_tokens=65536)
    with Cluster(tmp_path_factory.mktemp("disconnect") / "cluster", micro, options) as cluster:
        yield cluster


@pytest.mark.parametrize("leave", [RawHttp.close, RawHttp.reset], ids=["fin", "reset"])
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
    wait_until(lambda: not cluster.prefill.held(), lambda: f"prefill holds {cluster.prefill.held()}")
    freed = time.monotonic() - left
    cluster.wait_at_rest()
    print(f"prefill's pages were free {1000 * freed:.0f} ms after the client left")
    assert cluster.prefill.metric("tandem_prompt_tokens_total") - computed < LONG_PROMPT_TOKENS_MIN / 2, "most of it was never computed"
    assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_shuts_its_sending_side_during_the_prefill_is_served(slow_prefill, stream):
    messages = [{"role": "user", "content": SENTENCE * 100}]
    expected = plain(slow_prefill.openai(), messages=messages, max_tokens=4)
    with RawHttp(slow_prefill.url) as connection:
        with slow_prefill.prefill.paused():
            connection.post(chat(messages=messages, max_tokens=4, stream=stream))
            wait_until(slow_prefill.decode.held, lambda: "a request whose prompt is not done")
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
    stream = HeldStream(cluster, max_tokens=1200).begin()
    stream.connection.half_close()
    assert finish_reason(stream.rest()) == "length"


@pytest.mark.parametrize("leave", [HeldStream.close, HeldStream.reset], ids=["close", "reset"])
def test_leaving_inside_a_stream_frees_every_page(cluster, leave):
    generated = cluster.decode.metric("tandem_generation_tokens_total")
    stream = HeldStream(cluster).begin()
    left = time.monotonic()
    leave(stream)
    wait_until(lambda: not cluster.decode.held(), lambda: f"decode holds {cluster.decode.held()}")
    print(f"decode's pages were free {1000 * (time.monotonic() - left):.0f} ms after the client left")
    cluster.wait_at_rest()
    assert cluster.decode.metric("tandem_generation_tokens_total") - generated < LONG / 2


def test_the_next_turn_of_a_client_that_left_is_not_held_up_by_the_last(cluster):
    """The old turn's steps stop, the new one gets the tokens that it gets alone."""
    turn = QUESTION + [{"role": "assistant", "content": "Rome."}, {"role": "user", "content": "And of France?"}]
    expected = plain(cluster.openai(), messages=turn, max_tokens=24).content
    HeldStream(cluster, messages=QUESTION).begin().close()
    assert plain(cluster.openai(), messages=turn, max_tokens=24).content == expected
    wait_until(lambda: not cluster.decode.held(), lambda: f"decode holds {cluster.decode.held()}")
