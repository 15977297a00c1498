"""A client that leaves takes its request with it, on both workers."""

import pytest

from tests.e2e.asking import LONG_QUESTION, chat, plain, streamed
from tests.e2e.cluster import wait_until
from tests.e2e.held_stream import LONG_WHOLE, HeldStream
from tests.e2e.raw_http import RawHttp


def cancels(cluster):
    """Requests that (the router, decode) has cancelled so far."""
    return (
        cluster.router.metric("tandem_router_cancels_total", reason="client left"),
        cluster.decode.metric("tandem_requests_ended_total", outcome="cancelled"),
    )


def wait_cancelled(cluster, before, count=1):
    """Until that many more were cancelled on both; they did not run to their ends."""
    expected = (before[0] + count, before[1] + count)
    wait_until(lambda: cancels(cluster) == expected, lambda: f"{expected} cancels: {cancels(cluster)}")


@pytest.mark.parametrize("leave", [HeldStream.close, HeldStream.reset], ids=["close", "reset"])
def test_a_client_that_leaves_mid_stream_cancels_on_both_workers(cluster, leave):
    before = cancels(cluster)
    stream = HeldStream(cluster).begin()
    assert cluster.decode.held()
    leave(stream)
    wait_cancelled(cluster, before)
    cluster.wait_at_rest()
    with cluster.openai() as client:
        assert streamed(client, max_tokens=4).finish_reason == "length"


def test_a_client_that_leaves_before_its_whole_answer_cancels_it(cluster):
    before, generated = cancels(cluster), cluster.decode.metric("tandem_generation_tokens_total")
    connection = RawHttp(cluster.url)
    connection.post(chat(messages=LONG_QUESTION, **LONG_WHOLE))
    wait_until(lambda: cluster.decode.metric("tandem_generation_tokens_total") > generated, lambda: "a first token")
    connection.close()
    wait_cancelled(cluster, before)
    cluster.wait_at_rest()


def test_half_of_a_crowd_leaves_and_the_others_get_their_answers(cluster):
    leaving = [HeldStream(cluster).begin() for _ in range(4)]
    with cluster.openai() as client:
        expected = plain(client, messages=LONG_QUESTION, max_tokens=40).content
        before = cancels(cluster)
        for stream in leaving:
            stream.reset()
        wait_cancelled(cluster, before, count=4)
        assert plain(client, messages=LONG_QUESTION, max_tokens=40).content == expected
