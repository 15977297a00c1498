"""Token streams under stress: connections that break, clients that do not read, crowds, clients that die."""

import concurrent.futures
import http.client
import json
import socket
import threading
import time
import urllib.parse

from tests.e2e.asking import chat
from tests.e2e.cluster import wait_until
from tests.e2e.held_stream import HELD_BY_SMALL_BUFFERS, SMALL_BUFFERS, WIDE, HeldStream

PARKED = 'tandem_num_parked_reqs{role="decode"}'
PATIENCE = 300  # seconds; the machine may be busy with other things


def question(number):
    return [{"role": "user", "content": f"Question {number}: how many days has a week? " * (1 + number % 3)}]


class Stream:
    """One streamed answer, read chunk by chunk by the test."""

    def __init__(self, cluster, receive_buffer=None, **fields):
        address = urllib.parse.urlsplit(cluster.url)
        self.connection = http.client.HTTPConnection(address.netloc, timeout=PATIENCE)
        if receive_buffer is not None:
            self.connection.sock = socket.socket()
            self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.connection.sock.settimeout(PATIENCE)
            self.connection.sock.connect((address.hostname, address.port))
        body = json.dumps(chat(**fields, stream=True))
        self.connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.content, self.finish_reason, self.error, self.num_events = "", None, None, 0
        assert self.response.status == 200, self.response.read()

    def read_event(self):
        """False after [DONE]."""
        while line := self.response.readline():
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]\n":
                return False
            event = json.loads(line[len(b"data: ") :])
            self.num_events += 1
            if "error" in event:
                self.error = event["error"]
            for choice in event.get("choices", ()):
                self.content += choice["delta"].get("content") or ""
                self.finish_reason = choice["finish_reason"] or self.finish_reason
            return True
        raise AssertionError(f"the stream ended without [DONE] after {self.num_events} events")

    def read_all(self):
        while self.read_event():
            pass
        self.connection.close()
        return self.content, self.finish_reason, self.error


def ask_all(cluster, numbers, **fields):
    """Streams of all questions at once, each read by a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(lambda n: Stream(cluster, messages=question(n), **fields).read_all(), numbers))


def test_connections_that_break_between_router_and_decode_cost_no_client_a_token(fresh_cluster):
    """Cut as soon as one of the streams has been read so far; none goes on beyond that before the cut is healed.

    Flow control keeps decode close to the readers, so every cut is in the middle of all streams.
    """
    shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    with fresh_cluster(is_decode_behind_proxy=True, kv_cache_tokens=32768, router=SMALL_BUFFERS) as cluster:
        numbers, fields = range(8), WIDE | {"max_tokens": 600}
        expected = ask_all(cluster, numbers, **fields)
        assert all(finish == "length" and error is None for _, finish, error in expected)
        is_reached = [threading.Event() for _ in shares]
        is_healed = [threading.Event() for _ in shares]

        def read_in_parts(number):
            stream = Stream(cluster, receive_buffer=4096, messages=question(number), **fields)
            for share, reached, healed in zip(shares, is_reached, is_healed):
                while len(stream.content) < share * len(expected[number][0]):
                    assert stream.read_event(), "it ended early"
                reached.set()
                healed.wait()
            return stream.read_all()

        with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
            answers = [pool.submit(read_in_parts, number) for number in numbers]
            try:
                for num_cuts, (reached, healed) in enumerate(zip(is_reached, is_healed), start=1):
                    wait_until(
                        lambda: reached.is_set() or any(a.done() for a in answers), lambda: "the next part", PATIENCE
                    )
                    assert reached.is_set(), [a.result() for a in answers if a.done()]
                    assert cluster.proxy.cut() >= 2, "Live and Bulk were connected"
                    wait_until(
                        lambda: cluster.router.metric("tandem_router_streams_reattached_total") >= num_cuts,
                        lambda: "the decode worker again",
                        PATIENCE,
                    )
                    healed.set()
            finally:
                for healed in is_healed:
                    healed.set()
            assert [answer.result() for answer in answers] == expected
        assert cluster.router.metric("tandem_router_workers_lost_total") == 0
        assert cluster.decode.metric("tandem_reattached_routers_total") >= len(shares)
        cluster.wait_at_rest()


def test_sixty_four_streams_at_once_all_end_well_and_leave_nothing(fresh_cluster):
    with fresh_cluster(kv_cache_tokens=32768) as cluster:
        answers = ask_all(cluster, range(64), max_tokens=200)
        assert [(finish, error) for _, finish, error in answers] == [("length", None)] * 64
        again = ask_all(cluster, range(3), max_tokens=200)
        assert again == answers[:3], "alone as in the crowd"
        cluster.wait_at_rest()
        assert cluster.router.metric("tandem_router_unconfirmed_releases_total") == 0
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0


def test_a_client_that_reads_nothing_slows_nobody_and_goes_on_exactly_when_it_reads(fresh_cluster):
    with fresh_cluster(router=SMALL_BUFFERS) as cluster:
        fields = WIDE | {"messages": question(1), "max_tokens": 1000}
        expected = Stream(cluster, **fields).read_all()
        generated = cluster.decode.metric("tandem_generation_tokens_total")
        slow = Stream(cluster, receive_buffer=4096, **fields)
        # It has no room: its sequence sits out, gives its pages back, and holds nothing but its tokens.
        # The kernel may still make room once or twice, so what is waited for is seen in one look.
        wait_until(
            lambda: cluster.decode.held() == {PARKED: 1},
            lambda: f"a parked request that holds nothing: {cluster.decode.held()}, {cluster.router.held()}",
            PATIENCE,
        )
        assert cluster.decode.metric("tandem_retracted_reqs_total", cause="no_credit") >= 1
        num_ahead = cluster.decode.metric("tandem_generation_tokens_total") - generated
        # 64 KiB in the kernel's send buffer, a little in the client's, 4 KiB and 512 bytes of credit in the router.
        assert num_ahead < HELD_BY_SMALL_BUFFERS, "what is made ahead of a reader is bounded"
        others = ask_all(cluster, range(2, 10), max_tokens=100)
        assert all(finish == "length" for _, finish, _ in others)
        num_in_all = cluster.decode.metric("tandem_generation_tokens_total") - generated
        assert num_in_all - 8 * 100 < HELD_BY_SMALL_BUFFERS, "still bounded"
        assert slow.read_all() == expected
        cluster.wait_at_rest()


def test_a_client_that_takes_nothing_for_long_is_given_up_and_counted(fresh_cluster):
    with fresh_cluster(router=SMALL_BUFFERS | {"http": {"write_stall_timeout": "2s"}}) as cluster:
        stalled = HeldStream(cluster).begin()
        wait_until(
            lambda: cluster.router.metric("tandem_router_stalled_clients_total") == 1,
            lambda: "a client given up",
            PATIENCE,
        )
        cluster.wait_at_rest()
        assert cluster.decode.metric("tandem_requests_ended_total", outcome="cancelled") == 1
        stalled.close()


def test_the_pages_of_a_client_that_dies_are_back_soon(fresh_cluster, record_property):
    with fresh_cluster() as cluster:
        times = []
        for _ in range(5):
            stream = HeldStream(cluster).begin()
            assert cluster.decode.held()
            began = time.monotonic()
            stream.close()
            wait_until(lambda: not cluster.decode.held(), lambda: "the pages of decode", PATIENCE)
            times.append(time.monotonic() - began)
        record_property("pages_back_seconds", times)
        print("pages back after", [f"{1000 * t:.0f} ms" for t in times])
        assert min(times) < 30, "a bound for a machine that does other things; idle it is some tens of milliseconds"
        cluster.wait_at_rest()
