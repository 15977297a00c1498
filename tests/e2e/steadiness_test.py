"""Nothing grows: a few hundred requests, a part of them cancelled, and every process is as large as it was before.

Descriptors, threads and sockets are counted at rest, where they must come back to what they were once the pools of
threads and connections are warm, but for the few that a pool adds on a busy machine; resident memory may grow by a
small part, for what allocators keep. With --long the load is a steady one of four requests a second for ten minutes.
"""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.asking import plain, request
from tests.e2e.cluster import wait_until

ROUNDS = 4
LONG_ROUNDS = 30
REQUESTS = 80  # each round
LONG_RATE = 4  # requests a second
CLIENTS = 8
CANCEL_EVERY = 4
# What the rounds after the second may add: half of what a leak of one for each cancelled request would.
LEAK_MIN = (ROUNDS - 2) * REQUESTS // CANCEL_EVERY // 2
# Bytes of resident memory that a round may add once two rounds have warmed everything up.
GROWTH_MAX = 8 << 20


def sizes(process):
    """What the kernel knows of a process: (open descriptors, of these sockets, threads, resident bytes)."""
    folder = f"/proc/{process.pid}"
    names = os.listdir(f"{folder}/fd")
    sockets = 0
    for name in names:
        try:
            sockets += os.readlink(f"{folder}/fd/{name}").startswith("socket:")
        except OSError:
            continue  # closed since it was listed
    with open(f"{folder}/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(names), sockets, len(os.listdir(f"{folder}/task")), resident


def connections_in_time_wait(ports):
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in list(table)[1:]]
    return sum(line[3] == "06" and int(line[2].split(":")[1], 16) in ports for line in lines)


def test_hundreds_of_requests_with_cancels_leave_every_process_as_it_was(fresh_cluster, is_long):
    rnd = random.Random(3)
    rounds_to_run = LONG_ROUNDS if is_long else ROUNDS
    with fresh_cluster(lanes=("tcp",), chunked_prefill_size=128) as cluster:

        def ask(number):
            if is_long:  # open loop: each request has its moment
                time.sleep(max(0, round_began + number / LONG_RATE - time.monotonic()))
            words = "How many days? " * rnd.randrange(1, 40)
            fields = request(messages=[{"role": "user", "content": words}], max_tokens=rnd.randrange(1, 12))
            with cluster.openai() as client:
                if number % CANCEL_EVERY == 0:
                    stream = client.chat.completions.create(**fields | {"max_tokens": 200}, stream=True)
                    next(iter(stream))
                    stream.close()
                else:
                    client.chat.completions.create(**fields)

        bootstrap = cluster._ports["prefill_bootstrap0"]
        seen = {process.role: [] for process in cluster.processes}
        for _ in range(rounds_to_run):
            round_began = time.monotonic()
            with ThreadPoolExecutor(CLIENTS) as pool:
                list(pool.map(ask, range(REQUESTS)))
            cluster.wait_at_rest()
            # The router closes its clients' connections a moment after they have left.
            wait_until(lambda: cluster.router.metric("tandem_router_connections") <= 1, cluster.router.metrics)
            for process in cluster.processes:
                seen[process.role].append(sizes(process))
        for role, rounds in seen.items():
            print(role, rounds)
            warm, last = rounds[1], rounds[-1]
            for what, before, after in zip(("descriptors", "sockets", "threads"), warm, last):
                assert after < before + LEAK_MIN, f"{role}: {what} grew from {before} to {after}: {rounds}"
            growth = last[3] - warm[3]
            assert growth <= GROWTH_MAX * (ROUNDS - 2), f"{role} grew by {growth} bytes: {rounds}"
        # Workers keep their connections: none of theirs was closed and opened again.
        assert connections_in_time_wait({bootstrap}) == 0
        assert cluster.prefill.metric("tandem_kv_transfer_tcp_connections") == 1
        assert cluster.prefill.metric("tandem_kv_transfer_tcp_refused_total") == 0
        with cluster.openai() as client:
            assert plain(client).finish_reason == "length"
