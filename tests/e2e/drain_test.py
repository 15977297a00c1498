"""Stopping services under load: what runs is finished, what could go elsewhere goes there, and nobody is left in doubt."""

import errno
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, chat, plain
from tests.e2e.cluster import Cluster, get, wait_until
from tests.e2e.held_stream import LONG_WHOLE, HeldStream, error_of, finish_reason
from tests.e2e.raw_http import RawHttp

LONG_TO_READ = 1500  # tokens of a stream that is held first and then read to its end


def drain(cluster, worker, client):
    """SIGTERM to one worker of two; new requests go to the other one."""
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in get(cluster.url + "/statusz")[1] or not worker.is_running(), lambda: "a drain")
    assert cluster.router.readiness()[0] == 200, "the others serve"
    for _ in range(4):
        assert plain(client, max_tokens=4).finish_reason == "length"


def test_a_decode_worker_that_drains_finishes_what_it_has_gets_nothing_new_and_ends_with_0(fresh_cluster):
    with fresh_cluster(num_prefill=2, num_decode=2) as cluster, cluster.openai() as client:
        streams = [HeldStream(cluster, max_tokens=LONG_TO_READ).begin() for _ in range(4)]
        received = cluster.decode.metric("tandem_requests_received_total")
        assert 0 < received < 4, "they are spread"
        drain(cluster, cluster.decode, client)
        assert cluster.decode.readiness() == (503, "draining\n")
        assert cluster.decode.metric("tandem_requests_received_total") == received
        assert [finish_reason(stream.rest()) for stream in streams] == ["length"] * 4
        assert cluster.decode.wait() == 0
        cluster.wait_at_rest()


def test_a_prefill_worker_that_drains_finishes_what_it_has_and_ends_with_0(fresh_cluster):
    prompt = [{"role": "user", "content": LONG_QUESTION[0]["content"] * 10}]  # some 240 chunks
    with fresh_cluster(num_prefill=2, num_decode=2, chunked_prefill_size=16) as cluster, cluster.openai() as client:
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(plain, client, messages=prompt, max_tokens=4) for _ in range(4)]
            wait_until(lambda: cluster.prefill.metric("tandem_prompt_tokens_total") > 0, lambda: "a chunk computed")
            drain(cluster, cluster.prefill, client)
            assert [answer.result().finish_reason for answer in answers] == ["length"] * 4
        assert cluster.prefill.wait() == 0
        cluster.wait_at_rest()


def test_a_rolling_restart_of_every_worker_under_load_loses_no_request(fresh_cluster):
    with fresh_cluster(num_prefill=2, num_decode=2) as cluster:
        is_over = False
        answers = []
        expected = plain(cluster.openai(), messages=LONG_QUESTION, max_tokens=30).content

        def ask_until_over():
            with cluster.openai() as client:
                while not is_over:
                    answers.append(plain(client, messages=LONG_QUESTION, max_tokens=30).content)

        def wait_for_answers(count):
            goal = len(answers) + count
            wait_until(lambda: len(answers) >= goal or any(c.done() for c in clients), lambda: f"{goal} answers")

        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(ask_until_over) for _ in range(6)]
            try:
                for number in range(2):
                    for workers, restart in (
                        (cluster.decodes, cluster.restart_decode),
                        (cluster.prefills, cluster.restart_prefill),
                    ):
                        wait_for_answers(6)  # by all four pairs
                        code = workers[number].stop()
                        assert code == 0, f"{workers[number].name}: {code}\n{workers[number].tail()}"
                        wait_for_answers(6)  # by two
                        restart(number)
            finally:
                is_over = True
            for client in clients:
                client.result()  # raises what a client met
        assert set(answers) == {expected}
        cluster.wait_at_rest()


def test_a_worker_out_of_drain_time_ends_with_1_and_its_clients_are_told(fresh_cluster):
    with fresh_cluster(decode={"drain_timeout": "300ms"}) as cluster:
        stream = HeldStream(cluster).begin()
        cluster.decode.signal(signal.SIGTERM)
        assert error_of(stream.rest())["type"] == "service_unavailable_error"
        cluster.decode.exit_code = 1
        assert cluster.decode.wait() == 1
        wait_until(lambda: not cluster.prefill.held(), lambda: f"prefill holds {cluster.prefill.held()}")


def test_a_second_signal_ends_a_worker_at_once_and_its_clients_are_told(fresh_cluster):
    with fresh_cluster() as cluster:
        stream = HeldStream(cluster).begin()
        cluster.decode.signal(signal.SIGTERM)
        wait_until(lambda: cluster.decode.readiness()[0] == 503, cluster.decode.readiness)
        cluster.decode.signal(signal.SIGTERM)
        cluster.decode.exit_code = 1
        assert cluster.decode.wait() == 1
        assert error_of(stream.rest())["type"] == "service_unavailable_error"


def test_a_router_under_notice_is_not_ready_and_serves_everything(fresh_cluster):
    with fresh_cluster(router={"drain_notice": "1h"}) as cluster:
        stream = HeldStream(cluster, max_tokens=LONG_TO_READ).begin()
        cluster.router.signal(signal.SIGTERM)
        wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
        status, _, _ = cluster.post(chat(max_tokens=2))
        assert status == 200
        assert finish_reason(stream.rest()) == "length"
        cluster.wait_at_rest()  # the next signal finds nothing to cut: the router ends with 0


def test_a_router_after_its_notice_refuses_and_finishes_what_runs(fresh_cluster):
    with fresh_cluster(router={"drain_notice": "300ms"}) as cluster:
        stream = HeldStream(cluster, max_tokens=LONG_TO_READ).begin()
        cluster.router.signal(signal.SIGTERM)
        refused = wait_until(lambda: _refusal(cluster), lambda: "a refusal after the notice")
        assert refused.headers["Retry-After"] == "1" and "draining" in refused.error["message"]
        assert cluster.router.readiness()[0] == 503
        assert finish_reason(stream.rest()) == "length"
        assert cluster.router.wait() == 0


def _refusal(cluster):
    with RawHttp(cluster.url) as connection:
        connection.post(chat(max_tokens=1))
        response = connection.response()
        return response if response.status == 503 else None


@pytest.mark.parametrize("how", ["out of grace", "second signal"])
def test_a_router_that_must_end_early_tells_every_client_and_ends_with_1(fresh_cluster, how):
    with fresh_cluster(router={"drain_grace": "200ms" if how == "out of grace" else "1h"}) as cluster:
        stream = HeldStream(cluster).begin()
        whole = RawHttp(cluster.url)
        whole.post(chat(messages=LONG_QUESTION, **LONG_WHOLE))
        wait_until(lambda: cluster.decode.metric("tandem_requests_received_total") == 2, lambda: "two at decode")
        cluster.router.signal(signal.SIGTERM)
        if how == "second signal":
            wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
            cluster.router.signal(signal.SIGTERM)
        assert error_of(stream.rest())["message"] == "router is shutting down"
        response = whole.response()
        assert response.status == 503 and response.error["message"] == "router is shutting down"
        cluster.router.exit_code = 1
        assert cluster.router.wait() == 1
        for worker in (cluster.prefill, cluster.decode):
            wait_until(lambda: not worker.held(), lambda: f"{worker.name} holds {worker.held()}")


@pytest.mark.parametrize("role", ["prefill", "decode", "router"])
def test_a_signal_during_the_start_ends_a_service_at_once_with_0(micro, tmp_path, role):
    """The checkpoint's config.json is a pipe that says nothing: a start that takes as long as this test wants."""
    slow = tmp_path / "slow"
    slow.mkdir()
    for file in micro.iterdir():
        if file.name != "config.json":
            (slow / file.name).symlink_to(file)
    os.mkfifo(slow / "config.json")
    cluster = Cluster(tmp_path / "cluster", slow)
    getattr(cluster, f"start_{role}")()
    (process,) = cluster.processes

    def open_for_writing():
        try:
            return os.open(slow / "config.json", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO  # nobody reads yet
            return None

    try:
        pipe = wait_until(open_for_writing, lambda: f"{role} reads its configuration: {process.tail()}")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.tail()
        os.close(pipe)
    finally:
        process.kill()
    assert "stopped during the start" in process.tail()
