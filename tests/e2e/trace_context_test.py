"""W3C Trace Context: a client's traceparent through all three processes' logs and into the timeline; others replaced."""

import json
import re
import urllib.request

import pytest

from tests.e2e.asking import chat
from tests.e2e.cluster import get, wait_until
from tests.e2e.raw_http import RawHttp

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def ask(cluster, *traceparents):
    """The request's line in the router's list, once it has ended."""
    body = json.dumps(chat(max_tokens=2)).encode()
    request = urllib.request.Request(cluster.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    for header in traceparents:
        request.add_header("traceparent", header)
    with urllib.request.urlopen(request) as answer:
        id = json.loads(answer.read())["id"]
        assert answer.headers["x-request-id"] == id and answer.headers["traceparent"] is None
    return wait_until(lambda: next((one for one in recent(cluster) if one["id"] == id), None), lambda: recent(cluster))


def recent(cluster):
    return json.loads(get(cluster.url + "/debug/requests")[1])["recent"]


def lines(process, *parts):
    return [line for line in process.log.read_text().splitlines() if all(part in line for part in parts)]


def test_a_sampled_trace_is_in_every_log(fresh_cluster):
    with fresh_cluster() as cluster:
        sent = f"00-{TRACE}-{PARENT}-01"
        asked = ask(cluster, sent)
        assert asked["traceparent"] == sent
        wait_until(lambda: lines(cluster.router, "request ended", f"trace={TRACE}"), lambda: cluster.router.tail())
        (ended,) = lines(cluster.router, "request ended", f"req={asked['id']}")
        key = re.search(r"worker_req=(\w+)", ended).group(1)
        for worker in (cluster.prefill, cluster.decode):
            (began,) = lines(worker, "request begins", f"trace={TRACE}")
            assert f"req={key}/1" in began and f"prompt_tokens={asked['prompt_tokens']}" in began
        # One that nobody records is known to the router alone.
        quiet = ask(cluster, f"00-{TRACE[::-1]}-{PARENT}-00")
        assert quiet["traceparent"] == f"00-{TRACE[::-1]}-{PARENT}-00"
        cluster.wait_at_rest()
        for worker in (cluster.prefill, cluster.decode):
            assert len(lines(worker, "request begins")) == 1


@pytest.mark.parametrize(
    "sent, passed_on",
    [
        (f"cc-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01"),
        (f"cc-{TRACE}-{PARENT}-01-of-the-future", f"00-{TRACE}-{PARENT}-01"),
        (None, None),
        ("", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}-01-more", None),
    ],
)
def test_what_is_not_valid_is_replaced(cluster, sent, passed_on):
    got = ask(cluster, *([] if sent is None else [sent]))["traceparent"]
    if passed_on is not None:
        assert got == passed_on
        return
    assert re.fullmatch(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-00", got) and TRACE not in got
    assert ask(cluster)["traceparent"] != got


def test_two_of_them_are_none(cluster):
    """Which of them is right nobody can say."""
    twice = [f"traceparent: 00-{TRACE}-{PARENT}-01"] * 2
    with RawHttp(cluster.url) as connection:
        connection.post(chat(max_tokens=2), headers=twice)
        id = json.loads(connection.response().body)["id"]
    asked = wait_until(lambda: next((one for one in recent(cluster) if one["id"] == id), None), lambda: recent(cluster))
    assert TRACE not in asked["traceparent"]
