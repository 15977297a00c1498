"""More than the cluster can hold: it is said at once and honestly, and throughput is back as soon as the crowd has gone."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import chat, plain
from tests.e2e.cluster import wait_until
from tests.e2e.held_stream import HeldStream
from tests.e2e.raw_http import RawHttp


def asked(cluster, **fields):
    """A connection whose answer is still to come."""
    connection = RawHttp(cluster.url)
    connection.post(chat(**fields))
    return connection


def test_beyond_both_bounds_of_the_router_requests_get_429_and_an_honest_retry_after(fresh_cluster):
    with fresh_cluster(router={"max_inflight_requests": 2, "max_queued_requests": 3}) as cluster:
        running = [HeldStream(cluster).begin() for _ in range(2)]
        waiting = [asked(cluster, max_tokens=2) for _ in range(3)]
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
        with cluster.prefill.paused():  # so the first one holds the place until then
            waiting = [asked(cluster, max_tokens=2)]
            # Until it is served it stands in line itself.
            wait_until(lambda: cluster.decode.metric("tandem_kv_transfer_open_epochs") == 1, lambda: "one served")
            waiting += [asked(cluster, max_tokens=2) for _ in range(2)]
            wait_until(lambda: cluster.decode.metric("tandem_num_queue_reqs") == 2, lambda: "two in line at decode")
            response = asked(cluster).response()
            assert response.status == 429 and "requests in line: 2, at most 2" in response.error["message"]
            assert 1 <= int(response.headers["Retry-After"]) <= 60
        assert [connection.response().status for connection in waiting] == [200, 200, 200]
        cluster.wait_at_rest()


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_full_prefill_worker_is_429_and_nothing_stays_on_decode(fresh_cluster, policy):
    """Prompts of 2,000 tokens in a pool of 3,072: one at a time, one in line."""
    prompt = [{"role": "user", "content": "How many days are there in a week? There are seven days. " * 120}]
    settings = {"max_queued_requests": 1, "kv_cache_tokens": 3072, "chunked_prefill_size": 16, "schedule_policy": policy}
    with fresh_cluster(prefill=settings, kv_cache_tokens=65536) as cluster:
        with cluster.prefill.paused():  # they are all under way when it sees the first
            connections = [asked(cluster, messages=prompt, max_tokens=2) for _ in range(8)]
            wait_until(lambda: cluster.decode.metric("tandem_num_running_reqs") == 8, lambda: "eight with pages")
        responses = [connection.response() for connection in connections]
        assert {r.status for r in responses} == {200, 429}, [r.body[:300] for r in responses]
        refused = [r for r in responses if r.status == 429]
        assert all("prompts in line: 1, at most 1" in r.error["message"] for r in refused)
        assert all(int(r.headers["Retry-After"]) >= 1 for r in refused)
        cluster.wait_at_rest()


def test_two_hundred_clients_leave_at_once_and_the_next_load_finds_a_free_cluster(fresh_cluster, is_long):
    """Ten crowds one after the other with --long."""
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
        for number in range(10 if is_long else 1):
            received = cluster.decode.metric("tandem_requests_received_total")
            crowd = [HeldStream(cluster) for _ in range(200)]
            wait_until(
                lambda: cluster.router.metric("tandem_router_requests_in_flight") == 200, lambda: "a crowd of 200"
            )
            wait_until(
                lambda: cluster.decode.metric("tandem_requests_received_total") == received + 200, lambda: "all at decode"
            )
            left = time.monotonic()
            for stream in crowd:
                stream.reset()
            after = load()
            cluster.wait_at_rest()
            freed = time.monotonic() - left
            print(f"load before {before:.2f} s, after the crowd left {after:.2f} s, all free after {freed:.2f} s")
            # The first load after the crowd pays for its cancels, not for their work: none of them came to its end.
            cancelled = cluster.decode.metric("tandem_requests_ended_total", outcome="cancelled")
            assert cancelled == cluster.router.metric("tandem_router_cancels_total", reason="client left")
            assert cancelled == 200 * (number + 1)
