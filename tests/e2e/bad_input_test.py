"""Every kind of bad input: the right status, the field's name in the message, nothing held, and the next is served.

What single values are allowed is tested beside the parsers; here is what a client may do to the running services.
"""

import contextlib
import gzip
import json
import zlib

import pytest

from tests.e2e import asking
from tests.e2e.asking import plain
from tests.e2e.cluster import BRIEF_FAILOVER, MODEL, wait_until
from tests.e2e.held_stream import HeldStream, error_of
from tests.e2e.raw_http import RawHttp, as_bytes, post_head

MIB = 1 << 20


def chat(**fields):
    """The JSON object of a good request of two tokens, with some of its fields replaced."""
    return asking.chat(max_tokens=2) | fields


def padded(size):
    """A good request of exactly that many bytes."""
    empty = len(as_bytes(chat(padding="")))
    return as_bytes(chat(padding="p" * (size - empty)))


def ask(cluster, body, headers=()):
    with RawHttp(cluster.url) as connection:
        connection.post(body, headers)
        return connection.response()


@pytest.fixture
def survivor(cluster):
    """The shared cluster, which must be at rest and answer after whatever the test has done to it."""
    yield cluster
    cluster.wait_at_rest()
    assert plain(cluster.openai(), max_tokens=2).usage.completion_tokens == 2
    for process in cluster.processes:
        assert process.is_running() and not process.errors()


# Values of every kind of JSON, and the kinds that each field takes beside null (which counts as absent).
KINDS = {"bool": True, "integer": 7, "fraction": 0.5, "string": "x", "array": [1.5], "object": {"x": 1}}
FIELDS = {
    "model": {"string"},
    "messages": {"array"},
    "temperature": {"integer", "fraction"},
    "top_p": {"integer", "fraction"},
    "top_k": {"integer"},
    "seed": {"integer"},
    "max_tokens": {"integer"},
    "max_completion_tokens": {"integer"},
    "stop": {"string", "array"},
    "stop_token_ids": {"array"},
    "n": {"integer"},
    "logprobs": {"bool"},
    "top_logprobs": {"integer"},
    "logit_bias": {"object"},
    "min_p": {"integer", "fraction"},
    "min_tokens": {"integer"},
    "repetition_penalty": {"integer", "fraction"},
    "frequency_penalty": {"integer", "fraction"},
    "presence_penalty": {"integer", "fraction"},
    "ignore_eos": {"bool"},
    "stream": {"bool"},
    "reasoning_effort": {"string"},
    "thinking": {"object"},
    "chat_template_kwargs": {"object"},
    "stream_options": {"object"},
    "tools": {"array"},
    "response_format": {"object"},
}
WRONG_TYPES = [(field, kind) for field, kinds in FIELDS.items() for kind in KINDS if kind not in kinds]


def test_a_field_of_the_wrong_type_is_named(survivor):
    for field, kind in WRONG_TYPES:
        fields = {field: KINDS[kind]} | ({"stream": True} if field == "stream_options" else {})
        response = ask(survivor, chat(**fields))
        assert response.status == 400, f"{field} as {kind}: {response.body}"
        error = response.error
        assert error["message"].startswith(field) and error["param"].startswith(field), f"{field} as {kind}: {error}"
        assert error["type"] == "invalid_request_error"


def test_a_completions_prompt_that_is_none_is_named(survivor):
    for prompt in (None, 1, True, {}, [], [[]], [1.5], ["x", 1], [[1], "x"], [-1], [10**9], "", [""]):
        with RawHttp(survivor.url) as connection:
            connection.post({"model": MODEL, "prompt": prompt, "max_tokens": 1}, path="/v1/completions")
            response = connection.response()
        if response.status == 200 and prompt in ("", [""]):
            continue  # an empty text may be a prompt: the format's first token is there all the same
        assert response.status == 400, f"{prompt}: {response.body}"
        assert response.error["message"].startswith("prompt"), f"{prompt}: {response.error}"


NESTED_FIELDS = [
    ({"messages": [7]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content[0]"),
    ({"stop": ["x", 1]}, "stop[1]"),
    ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
    ({"chat_template_kwargs": {"thinking": "yes"}}, "chat_template_kwargs.thinking"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 1e400}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
]


def test_the_place_of_a_bad_value_is_named(survivor):
    for fields, place in NESTED_FIELDS:
        body = as_bytes(chat(**fields)).replace(b"Infinity", b"1e400")
        response = ask(survivor, body)
        assert response.status == 400, f"{fields}: {response.body}"
        assert place in response.error["message"], f"{fields}: {response.error}"


NO_REQUESTS = {
    "empty": (b"", "JSON"),
    "no JSON": (b"hello", "JSON"),
    "cut": (as_bytes(chat())[:-1], "JSON"),
    "two": (as_bytes(chat()) * 2, "JSON"),
    "array": (b"[]", "must be a JSON object"),
    "string": (b'"x"', "must be a JSON object"),
    "null": (b"null", "must be a JSON object"),
    "trailing comma": (b'{"model": "x",}', "JSON"),
    "arrays 10,000 deep": (b"[" * 10_000, "JSON"),
    "closed arrays 10,000 deep": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "JSON"),
    "objects 10,000 deep": (b'{"a": ' * 10_000, "JSON"),
    "high surrogate alone": (as_bytes(chat()).replace(b"capital", b"\\ud800"), "JSON"),
    "low surrogate alone": (as_bytes(chat()).replace(b"capital", b"\\udc00"), "JSON"),
    "surrogates in the wrong order": (as_bytes(chat()).replace(b"capital", b"\\udc00\\ud800"), "JSON"),
    "no UTF-8": (as_bytes(chat()).replace(b"capital", b"\xff\xfe"), "UTF-8"),
    "overlong UTF-8": (as_bytes(chat()).replace(b"capital", b"\xc0\xaf"), "UTF-8"),
    "surrogate as UTF-8": (as_bytes(chat()).replace(b"capital", b"\xed\xa0\x80"), "UTF-8"),
    "raw NUL": (as_bytes(chat()).replace(b"capital", b"\0"), "JSON"),
    "NUL behind it": (as_bytes(chat()) + b"\0", "JSON"),
    "other encoding": (json.dumps(chat()).encode("utf-16"), "JSON"),
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_a_body_that_is_no_request_is_refused(survivor, name):
    body, word = NO_REQUESTS[name]
    response = ask(survivor, body)
    assert response.status == 400, response.body
    assert word in response.error["message"], response.error


def test_an_escaped_nul_is_text_like_any_other(survivor):
    assert ask(survivor, chat(messages=[{"role": "user", "content": "a\0b"}])).status == 200


def test_unknown_models_paths_and_methods(survivor):
    response = ask(survivor, chat(model="gpt-4"))
    assert (response.status, response.error["param"], response.error["code"]) == (404, "model", "model_not_found")
    with RawHttp(survivor.url) as connection:
        connection.post(chat(), path="/v1/no/such/path")
        assert connection.response().status == 404
        connection.send(b"GET /v1/chat/completions HTTP/1.1\r\nHost: test\r\n\r\n")
        response = connection.response()
        assert (response.status, response.headers["Allow"]) == (405, "POST")


def test_a_prompt_longer_than_the_context_is_refused_and_says_both_lengths(survivor):
    response = ask(survivor, chat(messages=[{"role": "user", "content": "seven days " * 6000}]))
    assert response.status == 400
    error = response.error
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")
    assert str(survivor.options.context_length) in error["message"]


def test_where_it_is_allowed_a_prompt_longer_than_the_context_is_cut_and_the_answer_says_so(fresh_cluster):
    with fresh_cluster(router={"allow_auto_truncate": True}, context_length=1024) as cluster:
        text = "seven days in a week " * 400
        long = chat(messages=[{"role": "user", "content": text}], max_tokens=10)
        answer = json.loads(ask(cluster, long).body)
        usage = answer["usage"]
        assert usage["prompt_tokens"] == 1024 - 10 and usage["completion_tokens"] == 10
        assert usage["prompt_tokens_details"]["truncated_tokens"] > 1000
        # What is left is the end: another beginning changes nothing but the count.
        other = chat(messages=[{"role": "user", "content": "Listen. " + text}], max_tokens=10)
        again = json.loads(ask(cluster, other).body)
        assert again["choices"][0]["message"]["content"] == answer["choices"][0]["message"]["content"]
        assert again["usage"]["prompt_tokens_details"]["truncated_tokens"] > usage["prompt_tokens_details"]["truncated_tokens"]
        short = json.loads(ask(cluster, chat()).body)
        assert short["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert "truncated_tokens=" in cluster.router.log.read_text()


def test_twenty_mistakes_of_a_client_close_nothing_to_the_next(survivor):
    """Client mistakes are no failures of a worker."""
    too_long = chat(messages=[{"role": "user", "content": "seven days " * 6000}])
    assert {ask(survivor, too_long).status for _ in range(20)} == {400}
    assert ask(survivor, chat()).status == 200


# ---- Large bodies ----


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 16 * MIB, 64 * MIB - 1, 64 * MIB])
@pytest.mark.parametrize("framing", ["content-length", "chunked", "expect"])
def test_a_body_up_to_the_limit_is_taken(survivor, size, framing):
    body = padded(size)
    with RawHttp(survivor.url) as connection:
        if framing == "chunked":
            connection.send(post_head(None, ["Transfer-Encoding: chunked"]))
            for begin in range(0, size, 100_000):
                piece = body[begin : begin + 100_000]
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.send(b"0\r\n\r\n")
        elif framing == "expect":
            connection.send(post_head(size, ["Expect: 100-continue"]))
            assert (connection.line(), connection.line()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
            connection.send(body)
        else:
            connection.post(body)
        response = connection.response()
        assert response.status == 200, response.body[:500]
        connection.post(chat())
        assert connection.response().status == 200, "the connection goes on"


def assert_too_large(connection):
    response = connection.response()
    assert response.status == 413
    assert response.error["code"] == "request_too_large" and str(64 * MIB) in response.error["message"]
    assert response.headers["Connection"] == "close"
    assert connection.is_closed_by_server(), "with FIN, not RST: the answer must arrive"


def test_one_byte_over_the_limit_is_413_whoever_sends_it_first(survivor):
    before = survivor.router.metric("tandem_router_http_refusals_total", code="413")
    with RawHttp(survivor.url) as connection:  # announced, and sent all the same, until the answer is seen
        connection.send(post_head(64 * MIB + 1))
        for _ in range(64):
            if connection.has_news():
                break
            connection.send(b"x" * MIB)
        assert_too_large(connection)
    with RawHttp(survivor.url) as connection:  # announced, and the client waits for leave
        connection.send(post_head(64 * MIB + 1, ["Expect: 100-continue"]))
        assert_too_large(connection)
    with RawHttp(survivor.url) as connection:  # not announced
        connection.send(post_head(None, ["Transfer-Encoding: chunked"]))
        for _ in range(64):
            connection.send(b"100000\r\n" + b"x" * MIB + b"\r\n")
        connection.send(b"1\r\nx\r\n0\r\n\r\n")
        assert_too_large(connection)
    assert survivor.router.metric("tandem_router_http_refusals_total", code="413") == before + 3


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", gzip.compress(bytes(64 * MIB))), ("deflate", zlib.compress(as_bytes(chat()))), ("br", b"x")],
    ids=["gzip bomb", "deflate", "br"],
)
def test_compressed_bodies_are_refused_unread(survivor, coding, body):
    response = ask(survivor, body, [f"Content-Encoding: {coding}"])
    assert response.status == 415
    assert coding in response.error["message"]


# ---- Connections ----


def test_malformed_requests(survivor):
    for sent, status in [
        (b"\x16\x03\x01\x02\x00 not TLS here\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400),  # no Host
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
    ]:
        with RawHttp(survivor.url) as connection:
            connection.send(sent)
            response = connection.response()
            assert response.status == status, (sent[:80], response.body)
            assert response.error["message"]
            assert connection.is_closed_by_server()


def test_pipelined_requests_are_answered_in_order_on_one_connection(survivor):
    with RawHttp(survivor.url) as connection:
        bodies = [as_bytes(chat(max_tokens=n)) for n in (3, 1, 2)]
        connection.send(b"".join(post_head(len(body)) + body for body in bodies))
        counts = [json.loads(connection.response().body)["usage"]["completion_tokens"] for _ in bodies]
        assert counts == [3, 1, 2]


def test_a_hundred_silent_and_a_hundred_half_open_requests_hold_up_nobody(survivor):
    def connections():
        return survivor.router.metric("tandem_router_connections")

    silent = [RawHttp(survivor.url) for _ in range(100)]
    half = [RawHttp(survivor.url) for _ in range(100)]
    for connection in half[:50]:
        connection.send(b"POST /v1/chat/completions HTT")
    for connection in half[50:]:
        connection.send(post_head(1000) + b'{"model"')
    wait_until(lambda: connections() >= 200, lambda: f"200 connections: {connections()}")
    assert plain(survivor.openai(), max_tokens=2).usage.completion_tokens == 2
    for connection in silent + half:
        connection.close()
    wait_until(lambda: connections() < 100, lambda: f"the 200 connections gone: {connections()}")


@pytest.fixture
def impatient(fresh_cluster):
    """A cluster of small limits of time: they run out for whoever is slow, the machine included."""
    http_settings = {
        "header_timeout": "300ms",
        "body_stall_timeout": "300ms",
        "idle_timeout": "600ms",
    }
    with fresh_cluster(router={"http": http_settings}) as cluster:
        yield cluster
        cluster.wait_at_rest()


def test_slow_headers_and_bodies_are_ended_with_408_and_idle_connections_without_a_word(impatient):
    with RawHttp(impatient.url) as slow_head, RawHttp(impatient.url) as slow_body, RawHttp(impatient.url) as idle:
        slow_head.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: te")
        slow_body.send(post_head(100) + b"{")
        for connection in (slow_head, slow_body):
            response = connection.response()
            assert response.status == 408 and response.error["message"], response
            assert connection.is_closed_by_server()
        assert idle.is_closed_by_server()
    assert impatient.router.metric("tandem_router_http_refusals_total", code="408") == 2


def test_a_trickle_of_headers_does_not_extend_their_time(impatient):
    with RawHttp(impatient.url) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: a\r\n")
        sent = 0

        def is_refused():
            nonlocal sent
            try:
                connection.sock.settimeout(0.05)
                return connection.sock.recv(12).startswith(b"HTTP/1.1 408")
            except TimeoutError:
                with contextlib.suppress(OSError):  # refused and closed since: what it said is still to be read
                    connection.send(b"X-Slow: 1\r\n")
                sent += 1
                return False

        wait_until(is_refused, lambda: f"a 408 after {sent} further headers")


def test_connections_beyond_the_bound_are_told_and_others_go_on(fresh_cluster):
    """Streams that are being answered keep their places, whoever comes."""
    with fresh_cluster(router={"http": {"connections_max": 2}}) as cluster:

        def begun():  # a connection of the start may still count
            with contextlib.suppress(AssertionError, OSError):
                return HeldStream(cluster).begin()

        streams = [wait_until(begun, lambda: "a place for a stream") for _ in range(2)]
        for _ in range(3):
            with RawHttp(cluster.url) as refused:
                response = refused.response()
                assert response.status == 503 and "2" in response.error["message"], response
                assert response.headers["Retry-After"]
                assert refused.is_closed_by_server()
        for stream in streams:
            stream.close()

        def is_served():
            with RawHttp(cluster.url) as connection:
                with contextlib.suppress(OSError):  # refused before it was sent
                    connection.post(chat())
                return connection.response().status == 200

        wait_until(is_served, lambda: "a good request after the streams have gone")
        cluster.wait_at_rest()


# ---- Workers that are not there ----


def test_a_worker_that_is_down_before_is_503_and_one_that_dies_during_is_an_error_in_the_stream(fresh_cluster):
    with fresh_cluster(router=BRIEF_FAILOVER) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster).begin()
        cluster.decode.kill()
        error = error_of(stream.rest())
        assert error["type"] == "service_unavailable_error" and "decode worker" in error["message"]
        wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
        for _ in range(3):
            response = ask(cluster, chat())
            assert response.status == 503 and "no usable pair" in response.error["message"]
            assert int(response.headers["Retry-After"]) >= 1
        assert cluster.router.metric("tandem_router_requests_total", code="503") == 4
        cluster.restart_decode()
        assert ask(cluster, chat()).status == 200
        cluster.wait_at_rest()
