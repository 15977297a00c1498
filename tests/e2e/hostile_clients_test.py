"""Hostile clients of every kind at once, beside one that behaves: its answers are the same to the byte, each hostile one
gets what is right for it alone, and nothing of them is left.

Each kind by itself, with its limits of time, is tested in bad_input_test.py, streams_test.py and disconnect_test.py.
"""

import concurrent.futures
import contextlib
import json
import time

from tests.e2e.asking import LONG_QUESTION, QUESTION, chat, streamed
from tests.e2e.cluster import wait_until
from tests.e2e.held_stream import WIDE
from tests.e2e.raw_http import RawHttp, as_bytes, post_head

MIB = 1 << 20
ROUNDS = 3  # of each kind
NUM_LINGERING = 40  # connections that get nowhere and stay


def refusal(cluster, body, path="/v1/chat/completions"):
    """(status, what the error's message begins with or says)."""
    with RawHttp(cluster.url) as connection:
        connection.post(body, path=path)
        response = connection.response()
        return response.status, response.error["message"]


def send_deep_json(cluster):
    for body in (b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}", b'{"a":' * 200_000):
        status, message = refusal(cluster, body)
        assert status == 400 and "too deep" in message, message


def send_large_bodies(cluster):
    status, message = refusal(cluster, chat(messages=[{"role": "user", "content": "seven days " * 400_000}]))
    assert status == 400 and "the context holds" in message, message
    status, message = refusal(cluster, b"{" + b",".join(b'"k%d":1' % i for i in range(300_000)) + b"}")
    assert status == 400 and message.startswith("model"), message


def send_what_is_no_text(cluster):
    for bad in (b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\\ud800", b"\0"):
        status, message = refusal(cluster, as_bytes(chat()).replace(b"capital", bad))
        assert status == 400 and "invalid JSON" in message, message


def ask_for_too_much(cluster):
    for fields, field in [
        ({"n": 100_000}, "n:"),
        ({"stop": [f"stop {i}" for i in range(1000)]}, "stop:"),
        ({"stop": ["s" * 20_000]}, "stop:"),
        ({"logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias:"),
        ({"stop_token_ids": list(range(1000))}, "stop_token_ids:"),
        ({"messages": [{"role": "user", "content": "x"}] * 70_000}, "messages:"),
        ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(1025)]}, "tools:"),
    ]:
        status, message = refusal(cluster, chat() | fields)
        assert status == 400 and message.startswith(field), message


def ask_for_forms_that_explode(cluster):
    nested = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)} | {"d30": False}
    for fields in [
        {"regex": "(((a{1,100}){1,100}){1,100}){1,100}"},
        {"regex": r"(\w+\s?){1,2000}"},
        {"regex": "(" * 30_000 + ")" * 30_000},
        {"ebnf": 'root ::= root "a" | "b"'},
        {"ebnf": 'root ::= "a" root'},
        {"ebnf": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000},
        {"json_schema": json.dumps({"$ref": "#"})},
        {"json_schema": json.dumps({"$defs": nested, "$ref": "#/$defs/d0"})},
    ]:
        (field,) = fields
        status, message = refusal(cluster, chat(extra={"ignore_eos": False}) | fields)
        assert status == 400 and message.startswith(field + ":"), message


def send_what_is_no_http(cluster):
    for sent, status in [
        (b"\x16\x03\x01\x02\x00 a client of TLS\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (post_head(None, ["Transfer-Encoding: chunked"]) + b"5;" + b"x" * 100_000 + b"\r\n", 431),
        (post_head(None, ["Transfer-Encoding: chunked"]) + b"ffffffffffffffff\r\n", 413),
        (post_head(2, ["Transfer-Encoding: chunked"]) + b"0\r\n\r\n", 400),
    ]:
        with RawHttp(cluster.url) as connection:
            connection.send(sent)
            assert connection.response().status == status, sent[:80]
            assert connection.is_closed_by_server()


def pipeline(cluster):
    """Fifty requests in one breath, half of them bad: fifty answers in their order."""
    with RawHttp(cluster.url) as connection:
        bodies = [as_bytes(chat(max_tokens=1 + i % 3) | ({"top_p": 7} if i % 2 else {})) for i in range(50)]
        connection.send(b"".join(post_head(len(body)) + body for body in bodies))
        for i in range(50):
            response = connection.response()
            if i % 2:
                assert response.status == 400 and response.error["param"] == "top_p"
            else:
                assert json.loads(response.body)["usage"]["completion_tokens"] == 1 + i % 3


def stop_sending_and_read_on(cluster):
    with RawHttp(cluster.url) as connection:
        connection.post(chat(max_tokens=20, stream=True))
        connection.half_close()
        assert connection.response().body.endswith(b"data: [DONE]\n\n")


def ask_and_die(cluster):
    for fields in ({}, {"stream": True}, {"n": 8}, {"messages": LONG_QUESTION}):
        connection = RawHttp(cluster.url)
        connection.post(chat(max_tokens=2000) | fields)
        connection.reset()


def ask_for_many_and_read_nothing(cluster):
    connection = RawHttp(cluster.url, receive_buffer_bytes=4096)
    connection.post(chat(messages=LONG_QUESTION, max_tokens=2000, stream=True, n=8, **WIDE))
    wait_until(connection.has_news, lambda: "the beginning of a stream that nobody reads")
    connection.close()


KINDS = [
    send_deep_json,
    send_large_bodies,
    send_what_is_no_text,
    ask_for_too_much,
    ask_for_forms_that_explode,
    send_what_is_no_http,
    pipeline,
    stop_sending_and_read_on,
    ask_and_die,
    ask_for_many_and_read_nothing,
]


@contextlib.contextmanager
def lingering(cluster):
    """Connections that say nothing, half a head, or a byte of a body as large as they come, for as long as the block."""
    connections = [RawHttp(cluster.url) for _ in range(3 * NUM_LINGERING)]
    for connection in connections[:NUM_LINGERING]:
        connection.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: te")
    for connection in connections[NUM_LINGERING : 2 * NUM_LINGERING]:
        connection.send(post_head(64 * MIB) + b"{")
    body_bytes = "tandem_router_body_bytes"
    wait_until(lambda: cluster.router.metric(body_bytes) >= NUM_LINGERING, lambda: cluster.router.metric(body_bytes))
    yield
    for connection in connections:
        connection.close()


def test_whatever_others_send_a_good_clients_answers_are_the_same(fresh_cluster):
    with fresh_cluster() as cluster:
        client = cluster.openai()
        good = [{"messages": QUESTION, "max_tokens": 60}, {"messages": LONG_QUESTION, "max_tokens": 30, "thinking": True}]
        expected = [streamed(client, **fields) for fields in good]

        def be_hostile(kind):
            for _ in range(ROUNDS):
                kind(cluster)

        seconds = []
        with lingering(cluster), concurrent.futures.ThreadPoolExecutor(len(KINDS)) as pool:
            hostile = [pool.submit(be_hostile, kind) for kind in KINDS]
            while not seconds or not all(one.done() for one in hostile):
                for fields, answer in zip(good, expected):
                    begin = time.monotonic()
                    told = streamed(client, **fields)
                    seconds.append(time.monotonic() - begin)
                    assert (told.content, told.reasoning) == (answer.content, answer.reasoning)
                    assert (told.finish_reason, told.usage) == (answer.finish_reason, answer.usage)
            for one in hostile:
                one.result()
        print(f"{len(seconds)} good answers meanwhile, the slowest in {max(seconds):.2f} s")
        cluster.wait_at_rest()
        for process in cluster.processes:
            assert process.is_running() and not process.errors()
