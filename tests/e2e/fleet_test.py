"""Clusters of several workers, some of them dead: what is there serves, and the books are right afterwards."""

import json

import pytest
import yaml

from tests.e2e.asking import chat, plain
from tests.e2e.cluster import Process, free_ports, get, wait_until
from tests.e2e.held_stream import SMALL_BUFFERS, HeldStream
from tests.e2e.raw_http import RawHttp, events

DEAD_PREFILL, DEAD_DECODE = "127.0.0.1:1", "127.0.0.1:2"  # nobody listens there


def test_a_router_starts_with_dead_workers_in_its_lists_and_serves_by_the_live_ones(fresh_cluster):
    with fresh_cluster(further_prefill=(DEAD_PREFILL,), further_decode=(DEAD_DECODE,)) as cluster:
        assert get(cluster.url + "/health")[0] == 200
        assert cluster.router.readiness()[0] == 200
        for _ in range(4):
            assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
        statusz = get(cluster.url + "/statusz")[1]
        assert DEAD_PREFILL in statusz and DEAD_DECODE in statusz

        def told(address):
            lines = cluster.router.log.read_text().splitlines()
            return [line for line in lines if "worker cannot be used" in line and f"address={address} " in line]

        for address in (DEAD_PREFILL, DEAD_DECODE):
            wait_until(lambda: told(address), lambda: f"a line on {address}")
            assert len(told(address)) == 1, "one line, however often it is tried"


def test_models_are_listed_from_the_routers_own_knowledge(fresh_cluster):
    with fresh_cluster() as cluster:
        cluster.is_expected_to_log_errors = True
        cluster.decode.kill()
        cluster.prefill.kill()
        assert {get(cluster.url + "/v1/models")[0] for _ in range(20)} == {200}
        wait_until(lambda: cluster.router.readiness()[0] == 503, cluster.router.readiness)
        assert {get(cluster.url + "/v1/models")[0] for _ in range(20)} == {200}
        assert get(cluster.url + "/health")[0] == 200


def test_two_routers_of_one_name_are_told_apart_and_the_refused_one_floods_no_log(fresh_cluster):
    with fresh_cluster() as cluster:
        (port,) = free_ports(1)
        config = yaml.safe_load((cluster.folder / "router.yaml").read_text())
        config["process"]["port"] = port
        second = Process("router", "router-second", cluster.folder, config, port)
        try:
            wait_until(lambda: second.readiness()[0] == 200, second.readiness)
            wait_until(lambda: "has greeted later" in cluster.router.readiness()[1], cluster.router.readiness)
            with cluster.openai(base_url=f"{second.admin}/v1") as client:
                for _ in range(30):  # while the first one tries again and again
                    assert plain(client, max_tokens=40).finish_reason == "length"
        finally:
            assert second.stop() == 0
        for worker in (cluster.prefill, cluster.decode):

            def told():
                return [line for line in worker.log.read_text().splitlines() if "router refused" in line]

            wait_until(told, lambda: f"a line of {worker.name}")
            assert len(told()) == 1, told()


def resident_bytes(process):
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("failover", [True, False], ids=["failover", "no failover"])
def test_requests_that_are_cut_lost_or_good_leave_nothing_behind(fresh_cluster, failover):
    """A third is cut by the client, a third's decode worker is killed, a third ends well; several times over."""
    with fresh_cluster(num_decode=2, router=SMALL_BUFFERS | {"failover": failover}) as cluster:
        cluster.is_expected_to_log_errors = True

        def round_of(count):
            streams = [HeldStream(cluster, max_tokens=400) for _ in range(count)]
            for stream in streams:
                stream.begin()
            for stream in streams[::3]:
                stream.reset()
            cluster.decodes[1].kill()
            ends = {"good": 0, "lost": 0}
            for index, stream in enumerate(streams):
                if index % 3 == 0:
                    continue
                told = stream.rest()
                assert told[-1] == "[DONE]"
                last = json.loads(told[-2])
                assert "error" in last or last["choices"][0]["finish_reason"] == "length", last
                ends["lost" if "error" in last else "good"] += 1
            cluster.restart_decode(1)
            cluster.wait_at_rest()
            return ends

        total = {"good": 0, "lost": 0}
        resident = []
        for _ in range(5):
            ends = round_of(24)
            total = {kind: total[kind] + ends[kind] for kind in total}
            resident.append(resident_bytes(cluster.router))
        assert total["good"] > 0 and sum(total.values()) == 5 * 16
        assert (total["lost"] == 0) == failover, total
        print(f"{total}, router's resident memory {[f'{r >> 20} MiB' for r in resident]}")
        assert resident[-1] < resident[1] * 1.05 + (4 << 20)
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


@pytest.mark.parametrize("first", [1, 2, 65])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_prefill_alone_gives_is_whole(cluster, first, stream):
    """max_tokens 1 is the token that prefill sampled; decode never steps."""
    whole = plain(cluster.openai(), max_tokens=first)
    with RawHttp(cluster.url) as connection:
        extra = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        connection.post(chat(max_tokens=first) | extra)
        response = connection.response()
    if not stream:
        (choice,) = json.loads(response.body)["choices"]
        assert choice["message"]["content"] == whole.content and choice["finish_reason"] == "length"
        assert json.loads(response.body)["usage"]["completion_tokens"] == first
        return
    told = list(events(response.body))
    assert told.count("[DONE]") == 1 and told[-1] == "[DONE]"
    chunks = [json.loads(e) for e in told[:-1]]
    text = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
    reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert (text, reasons) == (whole.content, ["length"])
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")] == [first]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_end_as_the_first_token_is_an_empty_answer_that_stopped(cluster, stream):
    """By seed: some of the draws at a high temperature begin with one of the ids that end."""
    ids = list(range(300, 364))
    for seed in range(400):
        body = chat(max_tokens=100, temperature=2.0, seed=seed, stop_token_ids=ids, ignore_eos=False)
        with RawHttp(cluster.url) as connection:
            connection.post(body)
            answer = json.loads(connection.response().body)
        if answer["usage"]["completion_tokens"] == 1:
            break
    else:
        raise AssertionError("no draw of 400 ended with its first token")
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    if stream:
        with RawHttp(cluster.url) as connection:
            connection.post(body | {"stream": True})
            told = list(events(connection.response().body))
        assert told[-1] == "[DONE]" and told.count("[DONE]") == 1
        choices = [c for e in told[:-1] for c in json.loads(e)["choices"]]
        assert "".join(c["delta"].get("content") or "" for c in choices) == ""
        assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
