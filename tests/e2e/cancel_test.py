"""A client that leaves takes its request with it, on both workers."""

import http.client
import json
import socket
import struct
import urllib.parse

import pytest

from tests.e2e.asking import LONG_QUESTION, plain, request, streamed
from tests.e2e.cluster import wait_until


LONG = 6000  # tokens: many seconds


def open_stream(cluster, body):
    """A raw connection whose answer has begun to stream: (connection, response)."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(cluster.url).netloc, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    return connection, response


def raw_request(**fields):
    body = request(**fields)
    return body | body.pop("extra_body")


def reset(connection):
    """As a client that dies: RST instead of FIN."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def cancels(cluster):
    """Requests that (the router, decode) has cancelled so far."""
    return (
        cluster.router.metric("tandem_router_cancels_total", reason="client left"),
        cluster.decode.metric("tandem_requests_ended_total", outcome="cancelled"),
    )


@pytest.mark.parametrize("leave", [http.client.HTTPConnection.close, reset], ids=["close", "reset"])
def test_a_client_that_leaves_mid_stream_cancels_on_both_workers(cluster, leave):
    body = raw_request(messages=LONG_QUESTION, max_tokens=LONG, stream=True)
    connection, response = open_stream(cluster, body)
    for _ in range(3):
        response.readline()
    assert cluster.decode.held()
    before = cancels(cluster)
    leave(connection)
    cluster.wait_at_rest(seconds=2)
    assert cancels(cluster) == (before[0] + 1, before[1] + 1), "it was cancelled, it did not run to its end"
    with cluster.openai() as client:
        assert streamed(client, max_tokens=4).finish_reason == "length"


def test_a_client_that_leaves_before_its_whole_answer_cancels_it(cluster):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(cluster.url).netloc, timeout=30)
    body = raw_request(messages=LONG_QUESTION, max_tokens=LONG)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    before = cancels(cluster)
    wait_until(cluster.decode.held, lambda: "a request at decode")
    connection.close()
    cluster.wait_at_rest(seconds=2)
    assert cancels(cluster) == (before[0] + 1, before[1] + 1)


def test_half_of_a_crowd_leaves_and_the_others_get_their_answers(cluster):
    body = raw_request(messages=LONG_QUESTION, max_tokens=LONG, stream=True)
    leaving = [open_stream(cluster, body) for _ in range(4)]
    with cluster.openai() as client:
        expected = plain(client, messages=LONG_QUESTION, max_tokens=40).content
        before = cancels(cluster)
        for connection, _ in leaving:
            reset(connection)
        wait_until(lambda: cancels(cluster)[1] == before[1] + 4, lambda: f"4 more than {before}: {cancels(cluster)}", 5)
        assert plain(client, messages=LONG_QUESTION, max_tokens=40).content == expected
