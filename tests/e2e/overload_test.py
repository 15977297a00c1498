"""More than the cluster can hold: it is said at once and honestly, and throughput is back as soon as the crowd has gone."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.asking import LONG_QUESTION, plain, request
from tests.e2e.cluster import wait_until
from tests.e2e.raw_http import RawHttp

LONG = 6000  # tokens: many seconds


def chat(**fields):
    body = request(**fields)
    return body | body.pop("extra_body")


def held_streams(cluster, count):
    """Streams that have begun and do not end by themselves for long."""
    connections = [RawHttp(cluster.url) for _ in range(count)]
    for connection in connections:
        connection.post(chat(messages=LONG_QUESTION, max_tokens=LONG, stream=True))
    return connections


def test_beyond_both_bounds_of_the_router_requests_get_429_and_an_honest_retry_after(fresh_cluster):
    with fresh_cluster(router={"max_inflight_requests": 2, "max_queued_requests": 3}) as cluster:
        running = held_streams(cluster, 2)
        for connection in running:
            assert connection.stream().status == 200
        waiting = [RawHttp(cluster.url) for _ in range(3)]
        for connection in waiting:
            connection.post(chat(max_tokens=2))
        wait_until(lambda: cluster.router.metric("tandem_router_requests_waiting") == 3, lambda: "three in line")
        with RawHttp(cluster.url) as refused:
            refused.post(chat())
            response = refused.response()
        assert response.status == 429
        assert response.error["code"] == "rate_limit_exceeded"
        assert response.error["message"] == (
            "too many requests: 2 in flight, the limit is 2; 3 in line, the limit is 3"
        )
        assert 1 <= int(response.headers["Retry-After"]) <= 60
        assert cluster.router.metric("tandem_router_requests_in_flight") == 2
        running[0].reset()
        for connection in waiting:  # one after the other, in the place that was given back
            assert connection.response().status == 200
        running[1].reset()
        cluster.wait_at_rest()
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


def test_a_full_decode_worker_is_429_and_what_waits_there_is_served_in_turn(fresh_cluster):
    with fresh_cluster(decode={"max_running_requests": 1, "max_queued_requests": 2}) as cluster:
        (running,) = held_streams(cluster, 1)
        assert running.stream().status == 200
        waiting = [RawHttp(cluster.url) for _ in range(2)]
        for connection in waiting:
            connection.post(chat(max_tokens=2))
        wait_until(lambda: cluster.decode.metric("tandem_num_queue_reqs") == 2, lambda: "two in line at decode")
        with RawHttp(cluster.url) as refused:
            refused.post(chat())
            response = refused.response()
        assert response.status == 429 and "requests in line: 2, at most 2" in response.error["message"]
        assert 1 <= int(response.headers["Retry-After"]) <= 60
        running.reset()
        assert [connection.response().status for connection in waiting] == [200, 200]
        cluster.wait_at_rest()


def test_a_full_prefill_worker_is_429_and_nothing_stays_on_decode(fresh_cluster):
    """Prompts of 2,000 tokens in a pool of 3,072: one at a time, one in line."""
    prompt = [{"role": "user", "content": "How many days are there in a week? There are seven days. " * 120}]
    settings = {"max_queued_requests": 1, "kv_cache_tokens": 3072, "chunked_prefill_size": 16}
    with fresh_cluster(prefill=settings, kv_cache_tokens=65536) as cluster:
        connections = [RawHttp(cluster.url) for _ in range(8)]
        for connection in connections:
            connection.post(chat(messages=prompt, max_tokens=2))
        responses = [connection.response() for connection in connections]
        assert {r.status for r in responses} == {200, 429}, [r.body[:300] for r in responses]
        refused = [r for r in responses if r.status == 429]
        assert all("prompts in line: 1, at most 1" in r.error["message"] for r in refused)
        assert all(int(r.headers["Retry-After"]) >= 1 for r in refused)
        cluster.wait_at_rest()


def test_two_hundred_clients_leave_at_once_and_the_next_load_finds_a_free_cluster(fresh_cluster):
    with fresh_cluster(decode={"max_queued_requests": 256}) as cluster, ThreadPoolExecutor(8) as pool:

        def load():
            """Seconds that 24 requests of 20 tokens take, 8 at a time."""
            began = time.monotonic()
            with cluster.openai() as client:
                for answer in pool.map(lambda _: plain(client, max_tokens=20), range(24)):
                    assert answer.finish_reason == "length"
            return time.monotonic() - began

        load()
        before = load()
        crowd = held_streams(cluster, 200)
        wait_until(
            lambda: cluster.router.metric("tandem_router_requests_in_flight") == 200, lambda: "a crowd of 200"
        )
        wait_until(lambda: cluster.decode.metric("tandem_num_running_reqs") > 20, lambda: "a full decode worker")
        left = time.monotonic()
        for connection in crowd:
            connection.reset()
        after = load()
        cluster.wait_at_rest(seconds=2)
        freed = time.monotonic() - left
        print(f"load before {before:.2f} s, right after the crowd left {after:.2f} s, all free after {freed:.2f} s")
        cancelled = cluster.decode.metric("tandem_requests_ended_total", outcome="cancelled")
        assert cancelled == cluster.router.metric("tandem_router_cancels_total", reason="client left") == 200
        # The first load after the crowd pays for its cancels once; it must not pay for their work.
        assert after < 3 * before + 2
