"""Stopping services under load: what runs is finished, what could go elsewhere goes there, and nobody is left in doubt."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, plain, request
from tests.e2e.cluster import get, wait_until
from tests.e2e.raw_http import RawHttp, events

LONG = 6000  # tokens: many seconds


def chat(**fields):
    body = request(**fields)
    return body | body.pop("extra_body")


def open_stream(cluster, **fields):
    """A stream that has begun: (connection, response, the bytes read so far)."""
    connection = RawHttp(cluster.url)
    connection.post(chat(stream=True, messages=LONG_QUESTION, **fields))
    response = connection.stream()
    assert response.status == 200
    begun = b""
    while b'"content"' not in begun:
        begun += response.readline()
    return connection, response, begun


def rest_of(stream):
    """What the stream tells to its end: its events, [DONE] included."""
    connection, response, begun = stream
    told = list(events(begun + response.read()))
    connection.close()
    return told


def finish_reason(told):
    """Of a stream that ended well; AssertionError where it did not."""
    assert told[-1] == "[DONE]", told[-2:]
    (reason,) = [c["finish_reason"] for e in told[:-1] for c in json.loads(e)["choices"] if c["finish_reason"]]
    return reason


def error_of(told):
    """Of a stream that was cut: the error is the last event before [DONE], and no finish reason was given."""
    assert told[-1] == "[DONE]", told[-2:]
    assert not any(c["finish_reason"] for e in told[:-2] for c in json.loads(e)["choices"])
    return json.loads(told[-2])["error"]


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_a_worker_that_drains_finishes_what_it_has_gets_nothing_new_and_ends_with_0(fresh_cluster, role):
    with fresh_cluster(num_prefill=2, num_decode=2) as cluster, cluster.openai() as client:
        streams = [open_stream(cluster, max_tokens=400) for _ in range(4)]
        worker = getattr(cluster, role)
        received = worker.metric("tandem_requests_received_total")
        assert received == 2, "two of four: they are spread"
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in get(cluster.url + "/statusz")[1] or not worker.is_running(), lambda: "a drain")
        assert cluster.router.readiness()[0] == 200, "the others serve"
        for _ in range(4):
            assert plain(client, max_tokens=4).finish_reason == "length"
            if worker.is_running():
                assert worker.readiness() in [(503, "draining\n"), (0, worker.readiness()[1])]
        assert [finish_reason(rest_of(stream)) for stream in streams] == ["length"] * 4
        assert worker.wait() == 0
        cluster.wait_at_rest()


def test_a_rolling_restart_of_every_worker_under_load_loses_no_request(fresh_cluster):
    with fresh_cluster(num_prefill=2, num_decode=2) as cluster:
        is_over = False
        expected = plain(cluster.openai(), messages=LONG_QUESTION, max_tokens=30).content

        def ask_until_over(_):
            answers = []
            with cluster.openai() as client:
                while not is_over:
                    answers.append(plain(client, messages=LONG_QUESTION, max_tokens=30).content)
            return answers

        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(ask_until_over, n) for n in range(6)]
            try:
                for number in range(2):
                    for workers, restart in (
                        (cluster.decodes, cluster.restart_decode),
                        (cluster.prefills, cluster.restart_prefill),
                    ):
                        code = workers[number].stop()
                        assert code == 0, f"{workers[number].name}: {code}\n{workers[number].tail()}"
                        restart(number)
                        wait_until(
                            lambda: cluster.router.metric("tandem_router_usable_pairs") == 4, lambda: "four pairs"
                        )
            finally:
                is_over = True
            answers = [answer for client in clients for answer in client.result()]  # raises what a client met
        assert len(answers) >= 12 and set(answers) == {expected}
        cluster.wait_at_rest()


def test_a_worker_out_of_drain_time_ends_with_1_and_its_clients_are_told(fresh_cluster):
    with fresh_cluster(decode={"drain_timeout": "300ms"}) as cluster:
        stream = open_stream(cluster, max_tokens=LONG)
        cluster.decode.signal(signal.SIGTERM)
        assert error_of(rest_of(stream))["type"] == "service_unavailable_error"
        cluster.decode.exit_code = 1
        assert cluster.decode.wait() == 1
        wait_until(lambda: not cluster.prefill.held(), lambda: f"prefill holds {cluster.prefill.held()}", 10)


def test_a_second_signal_ends_a_worker_at_once_and_its_clients_are_told(fresh_cluster):
    with fresh_cluster() as cluster:
        stream = open_stream(cluster, max_tokens=LONG)
        cluster.decode.signal(signal.SIGTERM)
        wait_until(lambda: cluster.decode.readiness()[0] == 503, cluster.decode.readiness)
        cluster.decode.signal(signal.SIGTERM)
        cluster.decode.exit_code = 1
        assert cluster.decode.wait() == 1
        assert error_of(rest_of(stream))["type"] == "service_unavailable_error"


def test_a_router_is_not_ready_first_then_refuses_and_finishes_what_runs(fresh_cluster):
    with fresh_cluster(router={"drain_notice": "3s"}) as cluster:
        stream = open_stream(cluster, max_tokens=3000)
        cluster.router.signal(signal.SIGTERM)
        wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
        status, _, _ = cluster.post(chat(max_tokens=2))
        assert status == 200, "during the notice everything is served"
        refused = wait_until(lambda: _refusal(cluster), lambda: "a refusal after the notice")
        assert refused.headers["Retry-After"] == "1" and "draining" in refused.error["message"]
        assert finish_reason(rest_of(stream)) == "length"
        assert cluster.router.wait() == 0


def _refusal(cluster):
    with RawHttp(cluster.url) as connection:
        connection.post(chat(max_tokens=1))
        response = connection.response()
        return response if response.status == 503 else None


@pytest.mark.parametrize("how", ["out of grace", "second signal"])
def test_a_router_that_must_end_early_tells_every_client_and_ends_with_1(fresh_cluster, how):
    with fresh_cluster(router={"drain_grace": "200ms" if how == "out of grace" else "1h"}) as cluster:
        stream = open_stream(cluster, max_tokens=LONG)
        whole = RawHttp(cluster.url)
        whole.post(chat(max_tokens=LONG, messages=LONG_QUESTION))
        wait_until(lambda: cluster.decode.metric("tandem_num_running_reqs") == 2, lambda: "two running")
        cluster.router.signal(signal.SIGTERM)
        if how == "second signal":
            wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
            cluster.router.signal(signal.SIGTERM)
        error = error_of(rest_of(stream))
        assert error["message"] == "router is shutting down"
        response = whole.response()
        assert response.status == 503 and response.error["message"] == "router is shutting down"
        cluster.router.exit_code = 1
        assert cluster.router.wait() == 1
        for worker in (cluster.prefill, cluster.decode):
            wait_until(lambda: not worker.held(), lambda: f"{worker.name} holds {worker.held()}", 5)
