"""The transfer of KV pages between real processes when something is wrong: bytes, lanes, strangers, a new prefill worker.

What an answer says is compared with the same question's answer when nothing was wrong.
"""

import os
import random
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.e2e.asking import LONG_QUESTION, plain, request
from tests.e2e.cluster import BRIEF_FAILOVER, HOST, wait_until
from tests.e2e.held_stream import HeldStream, finish_reason

NO_HANG = 120  # seconds in which an error comes that needs a few
WRONG_SUMS = "tandem_kv_transfer_wrong_sums_total"
REFETCHED = "tandem_kv_transfer_refetched_pages_total"
QUARANTINES = "tandem_kv_transfer_quarantines_total"


@pytest.fixture(scope="module")
def undisturbed(shared_cluster):
    with shared_cluster.openai() as client:
        return plain(client, messages=LONG_QUESTION)


def shared_segments(pid):
    """Segments of UCX that a process has mapped: paths with their inodes."""
    with open(f"/proc/{pid}/maps") as maps:
        return {tuple(line.split()[4:6]) for line in maps if "ucx_shm" in line}


def wait_for_lanes(cluster, lanes):
    """The lanes that decode uses, best first. A lane that a busy machine made seem unfit is measured again."""

    def wired():
        (line,) = [line for line in cluster.decode.log.read_text().splitlines() if "prefill is wired" in line][-1:]
        return re.findall(r"(\w+) \d+ MB/s", line.split("refused:")[0])

    for _ in range(20):
        if sorted(wired()) == sorted(lanes):
            return wired()
        assert cluster.decode.stop() == 0
        cluster.restart_decode()
    raise AssertionError(f"lanes {wired()}, want {lanes}: {cluster.decode.tail()}")


# ---- Wrong bytes ----


@pytest.mark.parametrize("lanes", [("ucx_shm", "tcp"), ("tcp",)], ids="+".join)
def test_a_flipped_bit_is_fetched_again_and_changes_no_token(fresh_cluster, undisturbed, lanes):
    """By the other lane where there is one. The log names lane, layer and page."""
    with fresh_cluster(lanes=lanes, decode={"fault_lane": "at=1:corrupt"}) as cluster, cluster.openai() as client:
        used = wait_for_lanes(cluster, lanes)
        assert plain(client, messages=LONG_QUESTION) == undisturbed
        assert cluster.decode.metric(WRONG_SUMS) == 1
        assert cluster.decode.metric(REFETCHED) == 1
        log = cluster.decode.log.read_text()
        assert "wrong sum of a fetched page" in log
        assert f"of rank 0 by lane {used[0]}" in log and "layer" in log
        cluster.wait_at_rest()


def test_a_lane_that_corrupts_twice_is_quarantined_and_the_other_serves(fresh_cluster, shared_cluster):
    """Each lane suffers by the script; a prompt of one page is one fetch for each of the two layers.

    The first lane's fetch 0 is wrong, and its refetch, fetch 0 of the other, too: prefilled once more. Then the first
    lane's fetch 3 is wrong, which quarantines it, and its refetch, fetch 1 of the other, is right.
    """
    with shared_cluster.openai() as client:
        undisturbed = plain(client)
    with fresh_cluster(decode={"fault_lane": "at=0:corrupt,at=3:corrupt"}) as cluster, cluster.openai() as client:
        wait_for_lanes(cluster, cluster.options.lanes)
        assert plain(client) == undisturbed
        assert cluster.decode.metric(QUARANTINES) == 1
        assert cluster.decode.metric(WRONG_SUMS) == 3
        assert cluster.decode.metric("tandem_kv_transfer_retries_total", cause="data_loss") == 1
        assert "lane quarantined" in cluster.decode.log.read_text()
        assert plain(client) == undisturbed
        cluster.wait_at_rest()


def test_a_lane_that_always_lies_never_gives_a_token_and_holds_nothing(fresh_cluster):
    with fresh_cluster(lanes=("tcp",), decode={"fault_lane": "corrupt=1"}) as cluster, cluster.openai() as client:
        began = time.monotonic()
        with pytest.raises(openai.APIStatusError) as caught:
            plain(client, messages=LONG_QUESTION)
        assert caught.value.status_code in (500, 503)
        assert time.monotonic() - began < NO_HANG
        cluster.wait_at_rest()


@pytest.mark.parametrize("lane", ["ucx_shm", "tcp"])
def test_lanes_that_delay_reorder_duplicate_and_stall_change_no_token(fresh_cluster, undisturbed, lane):
    spec = "seed=5,delay=0.2,reorder=0.2,duplicate=0.2,stall=0.05,delay_time=15ms"
    with fresh_cluster(lanes=(lane,), decode={"fault_lane": spec}) as cluster, cluster.openai() as client:
        with ThreadPoolExecutor(4) as pool:
            same = list(pool.map(lambda _: plain(client, messages=LONG_QUESTION), range(8)))
        assert same == [undisturbed] * 8
        assert cluster.decode.metric(WRONG_SUMS) == 0
        cluster.wait_at_rest()


def test_a_fetch_that_never_ends_is_given_up_and_later_requests_are_served(fresh_cluster, undisturbed):
    """The lane is reset after its stall limit; the one that takes its place has a script of its own, from the start."""
    with fresh_cluster(lanes=("tcp",), decode={"fault_lane": "at=1:drop"}) as cluster, cluster.openai() as client:
        began = time.monotonic()
        try:
            plain(client, messages=LONG_QUESTION)
        except openai.APIStatusError as error:
            assert error.status_code == 503
        assert time.monotonic() - began < NO_HANG
        cluster.wait_ready()
        cluster.wait_at_rest()
        log = cluster.decode.log.read_text()
        assert "no fetch has completed for" in log


# ---- A new prefill worker at the old address ----


@pytest.mark.parametrize("lanes", [("ucx_shm",), ("tcp",)], ids="+".join)
def test_the_first_request_after_a_restart_of_prefill_works_and_the_old_one_is_unmapped(
    fresh_cluster, undisturbed, lanes
):
    with fresh_cluster(lanes=lanes) as cluster, cluster.openai() as client:
        cluster.is_expected_to_log_errors = True
        assert plain(client, messages=LONG_QUESTION) == undisturbed
        for _ in range(3):
            old = shared_segments(cluster.prefill.pid)
            assert bool(old & shared_segments(cluster.decode.pid)) == ("ucx_shm" in lanes)
            cluster.prefill.kill()
            wait_until(
                lambda: not old & shared_segments(cluster.decode.pid),
                lambda: f"decode still maps {old & shared_segments(cluster.decode.pid)} of a dead peer",
            )
            cluster.restart_prefill()
            assert plain(client, messages=LONG_QUESTION) == undisturbed
        cluster.wait_at_rest()


def test_pages_of_a_request_whose_prefill_dies_come_back_again_and_again(fresh_cluster, is_long):
    """Killed while its chunks are computed: decode holds pages for it and never hears of it again.

    500 deaths of the engine's peer are decode_worker/engine_prefill_test.cc's; of processes, with --long.
    """
    with fresh_cluster(chunked_prefill_size=16, router=BRIEF_FAILOVER) as cluster, cluster.openai() as client:
        cluster.is_expected_to_log_errors = True
        for _ in range(500 if is_long else 5):
            with ThreadPoolExecutor(4) as pool:
                running = [pool.submit(plain, client, messages=LONG_QUESTION, max_tokens=2) for _ in range(4)]
                wait_until(
                    lambda: cluster.decode.metric("tandem_kv_transfer_held_pages") > 0 or all(r.done() for r in running),
                    lambda: "pages held for a transfer",
                )
                cluster.prefill.kill()
                for future in running:
                    error = future.exception()
                    assert error is None or error.status_code == 503
            wait_until(lambda: not cluster.decode.held(), lambda: f"decode holds {cluster.decode.held()}")
            cluster.restart_prefill()
        plain(client, messages=LONG_QUESTION)
        cluster.wait_at_rest()


# ---- Strangers ----


def listening_ports(pid):
    """(host, port) of every TCP socket that the process listens on."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = set()
    for family in ("tcp", "tcp6"):  # gRPC listens on IPv4 addresses by sockets of IPv6
        with open(f"/proc/{pid}/net/{family}") as table:
            for line in list(table)[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    address, port = fields[1].split(":")
                    host = socket.inet_ntoa(struct.pack("<I", int(address[-8:], 16)))
                    found.add((HOST if host == "0.0.0.0" else host, int(port, 16)))
    return found


def what_scanners_say():
    noise = random.Random(1)
    yield from (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-scan\r\n", bytes(4096), b"\xff" * 4096)
    yield bytes.fromhex("16030100a5010000a1030362") + noise.randbytes(160)  # TLS
    yield struct.pack("<Q", 16) + bytes(2064)  # ends a listener of UCX 1.13.1
    for _ in range(10):
        yield noise.randbytes(noise.randrange(1, 300))


def test_a_scan_of_every_port_ends_no_process_and_no_stream(fresh_cluster, undisturbed):
    with fresh_cluster(lanes=("tcp",)) as cluster, cluster.openai() as client:
        stream = HeldStream(cluster, max_tokens=1200).begin()
        open_connections = []
        for process in cluster.processes:
            ports = listening_ports(process.pid)
            assert len(ports) >= 2 or process is cluster.router
            for where in sorted(ports):
                for said in what_scanners_say():
                    try:
                        connection = socket.create_connection(where, timeout=60)
                        connection.sendall(said)
                    except OSError:  # closed on us while we spoke
                        continue
                    if said:
                        connection.close()
                    else:
                        open_connections.append(connection)  # and never says a word
        assert finish_reason(stream.rest()) == "length"
        assert plain(client, messages=LONG_QUESTION) == undisturbed
        wait_until(
            lambda: cluster.prefill.metric("tandem_kv_transfer_tcp_refused_total") >= 10, lambda: "ten refusals"
        )
        for process in cluster.processes:
            assert process.is_running()
        for connection in open_connections:
            connection.close()
        cluster.wait_at_rest()


def test_by_default_no_port_of_ucx_is_open(fresh_cluster):
    """What the default lanes open: rpc, bootstrap, admin and one port of the tcp lane."""
    with fresh_cluster() as cluster:
        assert len(listening_ports(cluster.prefill.pid)) == 4
        assert len(listening_ports(cluster.decode.pid)) == 2


# ---- Many, mixed, with cancels ----


def test_a_canary_answers_the_same_while_a_fifth_of_all_requests_are_aborted(fresh_cluster):
    """Prompts of mixed length over TCP; every tenth question is the same one."""
    rnd = random.Random(7)
    with fresh_cluster(lanes=("tcp",), chunked_prefill_size=64) as cluster, cluster.openai() as client:
        canary = plain(client, messages=LONG_QUESTION)

        def ask(number):
            words = "How many? " * rnd.randrange(1, 60)
            fields = request(messages=[{"role": "user", "content": words}], max_tokens=6)
            if number % 5 == 0:
                stream = client.chat.completions.create(**fields, stream=True)
                if number % 2 == 0:
                    next(iter(stream))
                stream.close()
                return
            client.chat.completions.create(**fields)

        with ThreadPoolExecutor(4) as pool:
            for begin in range(0, 200, 10):
                list(pool.map(ask, range(begin, begin + 10)))
                assert plain(client, messages=LONG_QUESTION) == canary
        cluster.wait_at_rest()
        assert cluster.decode.metric(WRONG_SUMS) == 0
        for name in ("tandem_kv_transfer_stale_messages_total",):
            assert cluster.decode.metric(name) == 0
            assert cluster.prefill.metric(name) == 0
