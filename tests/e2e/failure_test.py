"""What a client sees when a process dies or is not there: an error at once, or an answer; never a hang."""

import itertools
import signal
import time

import openai
import pytest

from tests.e2e.asking import plain
from tests.e2e.cluster import BRIEF_FAILOVER, WATCHFUL_ROUTER, WATCHFUL_WORKER, get, make_checkpoint, wait_until
from tests.e2e.held_stream import HeldStream, error_of, finish_reason

NO_HANG = 60  # seconds in which an error comes that needs three
WATCHFUL = {"router": WATCHFUL_ROUTER | BRIEF_FAILOVER, "prefill": WATCHFUL_WORKER, "decode": WATCHFUL_WORKER}


def test_with_prefill_killed_requests_fail_quickly_and_work_again_after_its_restart(fresh_cluster):
    with fresh_cluster() as cluster, cluster.openai() as client:
        cluster.is_expected_to_log_errors = True
        before = plain(client)
        cluster.prefill.kill()
        began = time.monotonic()
        with pytest.raises(openai.APIStatusError) as caught:
            plain(client)
        assert caught.value.status_code == 503
        assert time.monotonic() - began < NO_HANG
        cluster.wait_at_rest()
        cluster.restart_prefill()
        assert plain(client) == before


def test_with_decode_killed_mid_stream_the_stream_ends_with_an_error(fresh_cluster):
    with fresh_cluster(router=BRIEF_FAILOVER) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster).begin()
        cluster.decode.kill()
        began = time.monotonic()
        assert error_of(stream.rest())["type"] == "service_unavailable_error"
        assert time.monotonic() - began < NO_HANG
        wait_until(lambda: not cluster.prefill.held(), lambda: f"prefill holds {cluster.prefill.held()}")


def test_a_stopped_prefill_fails_requests_quickly_and_serves_again_when_it_goes_on(fresh_cluster):
    """SIGSTOP: the connections stay, nobody answers."""
    with fresh_cluster(**WATCHFUL) as cluster, cluster.openai() as client:
        cluster.is_expected_to_log_errors = True
        before = plain(client)
        with cluster.prefill.paused():
            began = time.monotonic()
            with pytest.raises(openai.APIStatusError) as caught:
                plain(client)
            assert caught.value.status_code == 503
            assert time.monotonic() - began < NO_HANG
        cluster.wait_ready()
        assert plain(client) == before
        cluster.wait_at_rest()


def test_a_stopped_decode_fails_its_streams_and_serves_again_when_it_goes_on(fresh_cluster):
    with fresh_cluster(**WATCHFUL) as cluster, cluster.openai() as client:
        cluster.is_expected_to_log_errors = True
        before = plain(client)
        stream = HeldStream(cluster).begin()
        with cluster.decode.paused():
            began = time.monotonic()
            assert error_of(stream.rest())["type"] == "service_unavailable_error"
            assert time.monotonic() - began < NO_HANG
        cluster.wait_ready()
        assert plain(client) == before
        cluster.wait_at_rest()


@pytest.mark.parametrize("start_order", list(itertools.permutations(("prefill", "decode", "router"))), ids="-".join)
def test_processes_may_start_in_any_order(fresh_cluster, start_order):
    with fresh_cluster(start_order=start_order) as cluster, cluster.openai() as client:
        assert plain(client).finish_reason == "length"


def test_workers_of_different_checkpoints_refuse_each_other_and_say_why(fresh_cluster, tmp_path):
    other = make_checkpoint(tmp_path / "other", "v32-micro", seed=2)
    with fresh_cluster(prefill_checkpoint=other, is_to_be_ready=False) as cluster:
        statusz = cluster.url + "/statusz"
        wait_until(lambda: "not usable" in get(statusz)[1], lambda: f"a refusal: {get(statusz)[1]}")
        assert "model_hash: decode has" in get(statusz)[1]
        assert cluster.router.readiness()[0] == 503
        with cluster.openai() as client, pytest.raises(openai.APIStatusError) as caught:
            plain(client)
        assert caught.value.status_code == 503


def test_workers_of_different_cache_formats_refuse_each_other_and_say_why(fresh_cluster):
    with fresh_cluster(prefill_kv_cache_dtype="bfloat16", is_to_be_ready=False) as cluster:
        statusz = cluster.url + "/statusz"
        wait_until(lambda: "not usable" in get(statusz)[1], lambda: f"a refusal: {get(statusz)[1]}")
        assert 'kv_cache_dtype: decode has "fp8_e4m3", prefill has "bfloat16"' in get(statusz)[1]
        assert cluster.router.readiness()[0] == 503


def test_a_router_without_workers_is_not_ready_and_answers_503(fresh_cluster):
    with fresh_cluster(start_order=("router",), is_to_be_ready=False) as cluster:
        assert cluster.router.readiness()[0] == 503
        with cluster.openai() as client, pytest.raises(openai.APIStatusError) as caught:
            plain(client)
        assert caught.value.status_code == 503


def test_a_router_that_drains_finishes_a_running_stream_before_it_ends(fresh_cluster):
    with fresh_cluster() as cluster:
        stream = HeldStream(cluster, max_tokens=1200).begin()
        cluster.router.signal(signal.SIGTERM)
        wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
        assert finish_reason(stream.rest()) == "length"
        wait_until(lambda: not cluster.router.is_running(), lambda: "the router's end")
