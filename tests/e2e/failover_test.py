"""Answers outlive their workers: one that dies, stops or restarts changes no byte of what a client gets."""

import contextlib
import json

import pytest

from tests.e2e.asking import LONG_QUESTION, chat
from tests.e2e.cluster import WATCHFUL_ROUTER, wait_until
from tests.e2e.held_stream import HeldStream, LONG, error_of
from tests.e2e.raw_http import RawHttp

SAMPLED = {"temperature": 1.0, "seed": 11, "frequency_penalty": 0.5}
MAX_TOKENS = 1400  # more than an unread stream gets ahead


def added_up(told):
    """What the events of a stream come to, however the text was cut: of each choice its text, logprobs and end."""
    assert told[-1] == "[DONE]", told[-2:]
    choices, usage = {}, None
    for event in map(json.loads, told[:-1]):
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            known = choices.setdefault(choice["index"], {"text": "", "logprobs": [], "ends": []})
            assert not known["ends"], "something comes after the end"
            known["text"] += choice["delta"].get("content") or ""
            if choice.get("logprobs"):
                known["logprobs"] += choice["logprobs"]["content"]
            if choice["finish_reason"]:
                known["ends"].append(choice["finish_reason"])
    assert all(choice["ends"] == ["length"] for choice in choices.values())
    return choices, but_for_the_cache(usage)


def but_for_the_cache(usage):
    """What the prefix cache had of a prompt depends on what was asked before."""
    return {key: value for key, value in (usage or {}).items() if key != "prompt_tokens_details"}


def where_it_runs(workers):
    """The number of the worker that has the one request."""
    running = wait_until(
        lambda: [number for number, worker in workers.items() if worker.metric("tandem_num_running_reqs") > 0
                 or worker.metric("tandem_num_parked_reqs") > 0],
        lambda: "a request at one of the workers",
    )
    (number,) = running
    return number


def tokens_at_router(cluster):
    return cluster.router.metric("tandem_generation_tokens_total")


def failovers(cluster, had_tokens):
    return cluster.router.metric("tandem_router_failovers_total", had_tokens=had_tokens)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_stream_outlives_its_decode_worker(fresh_cluster, n, how):
    with fresh_cluster(num_decode=2, router=WATCHFUL_ROUTER) as cluster:
        fields = {"max_tokens": MAX_TOKENS, "n": n, "stream_options": {"include_usage": True}, **SAMPLED}
        expected = added_up(HeldStream(cluster, **fields).begin().rest())
        cluster.wait_at_rest()
        stream = HeldStream(cluster, **fields).begin()
        number = where_it_runs(cluster.decodes)
        cluster.is_expected_to_log_errors = True
        with cluster.decodes[number].paused() if how == "stopped" else contextlib.nullcontext():
            if how == "killed":
                cluster.decodes[number].kill()
            assert added_up(stream.rest()) == expected
            assert failovers(cluster, had_tokens="yes") == 1
        cluster.wait_at_rest()


def test_a_stream_outlives_every_worker_that_it_has(fresh_cluster):
    """One pair, killed and started anew, twice: the stream waits and goes on."""
    with fresh_cluster(router={"failover_wait": "10m"}) as cluster:
        cluster.is_expected_to_log_errors = True
        fields = {"max_tokens": 3 * MAX_TOKENS, **SAMPLED}
        expected = added_up(HeldStream(cluster, **fields).begin().rest())
        stream = HeldStream(cluster, **fields).begin()
        for times in (1, 2):
            cluster.decode.kill()
            cluster.prefill.kill()
            cluster.restart_pair()
            stream.read_until(lambda: failovers(cluster, had_tokens="yes") == times)
            # What loses two workers with no token between is given to no third.
            generated = tokens_at_router(cluster)
            stream.read_until(lambda: tokens_at_router(cluster) > generated)
        assert added_up(stream.rest()) == expected
        cluster.wait_at_rest()


def test_a_whole_answer_outlives_its_decode_worker(fresh_cluster):
    with fresh_cluster(num_decode=2) as cluster:
        cluster.is_expected_to_log_errors = True
        body = chat(messages=LONG_QUESTION, max_tokens=LONG, n=4, **SAMPLED)
        status, _, expected = cluster.post(body)
        assert status == 200
        with RawHttp(cluster.url) as connection:
            connection.post(body)
            number = where_it_runs(cluster.decodes)
            decode = cluster.decodes[number]
            wait_until(lambda: decode.metric("tandem_generation_tokens_total") > 0, lambda: "a token")
            decode.kill()
            response = connection.response()
        assert response.status == 200
        got, wanted = json.loads(response.body), json.loads(expected)
        assert got["choices"] == wanted["choices"]
        assert but_for_the_cache(got["usage"]) == but_for_the_cache(wanted["usage"])
        cluster.wait_at_rest()


def test_a_prompt_outlives_its_prefill_worker(fresh_cluster):
    """Killed in the middle of a long prompt: nothing has come of it, so it starts from the front."""
    slow = {"chunked_prefill_size": 64}
    with fresh_cluster(num_prefill=2, prefill=slow) as cluster:
        cluster.is_expected_to_log_errors = True
        body = chat(messages=LONG_QUESTION * 16, max_tokens=8)
        with RawHttp(cluster.url) as connection:
            connection.post(body)
            (number,) = wait_until(
                lambda: [number for number, worker in cluster.prefills.items() if worker.held()],
                lambda: "a prompt at one of the prefill workers",
            )
            cluster.prefills[number].kill()
            response = connection.response()
        assert response.status == 200, response.body
        status, _, expected = cluster.post(body)
        assert status == 200
        assert json.loads(response.body)["choices"] == json.loads(expected)["choices"]
        cluster.wait_at_rest()


def test_a_stream_with_nobody_to_go_on_ends_with_both_reasons(fresh_cluster):
    with fresh_cluster(router={"failover_wait": "100ms"}) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster).begin()
        cluster.decode.kill()
        error = error_of(stream.rest())
        assert "decode worker" in error["message"] and "no usable pair" in error["message"]
        assert cluster.router.metric("tandem_router_requests_without_worker") == 0


def test_failover_can_be_switched_off(fresh_cluster):
    with fresh_cluster(num_decode=2, router={"failover": False}) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster).begin()
        cluster.decodes[where_it_runs(cluster.decodes)].kill()
        assert "is lost" in error_of(stream.rest())["message"]


def test_a_client_that_leaves_while_its_stream_waits_leaves_nothing(fresh_cluster):
    with fresh_cluster(router={"failover_wait": "10m"}) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster).begin()
        cluster.decode.kill()
        stream.read_until(lambda: cluster.router.metric("tandem_router_requests_without_worker") == 1)
        stream.reset()
        wait_until(lambda: not cluster.router.held(), lambda: f"the router holds {cluster.router.held()}")
