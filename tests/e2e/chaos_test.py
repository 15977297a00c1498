"""Workers are killed, stopped and started anew under load, again and again: no client sees a byte of it.

Five processes: a router, two prefill and two decode workers. Clients ask a fixed set of questions all the time, greedy
and sampled, whole and streamed, one choice and several, short prompts and long ones; every answer must be the one that
an undisturbed cluster gave. A fault comes when the one before is over and every client has had an answer since: what
loses two workers with no token between is given to no third, by design. With --long a thousand faults. TANDEM_CHAOS_SEED=N
draws the same faults again, TANDEM_CHAOS_FAULTS=N so many.
"""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, chat
from tests.e2e.cluster import get, wait_until
from tests.e2e.held_stream import HeldStream
from tests.e2e.raw_http import RawHttp, events

FAULTS, LONG_FAULTS = 10, 1000
CLIENTS = 6
# Longer than any process is without a processor on a busy machine: what is suspected has been stopped or killed.
SILENCE = {"peer_silence_max": "5s"}
# Everything that decides the text of an answer: sampling, logprobs, choices, length of prompt and of answer.
SAMPLED = {"temperature": 1.0, "seed": 3, "presence_penalty": 0.3}
QUESTIONS = [
    chat(max_tokens=60),
    chat(messages=LONG_QUESTION, max_tokens=120, **SAMPLED),
    chat(messages=LONG_QUESTION * 4, max_tokens=20, logprobs=True, top_logprobs=2),
    chat(messages=QUESTION, max_tokens=90, n=3, **SAMPLED),
    chat(messages=LONG_QUESTION, max_tokens=150, stream=True, stream_options={"include_usage": True}),
    chat(messages=QUESTION, max_tokens=200, n=2, stream=True, thinking=True, **SAMPLED),
]


def without_cached(usage):
    """But for what the prefix caches made of it, which depends on what was asked before."""
    return usage and usage | {"prompt_tokens_details": None}


def answer_to(cluster, body):
    """What the client is told, without what differs from one request to the next: how the text was cut, ids, times."""
    with RawHttp(cluster.url) as connection:
        connection.post(body)
        response = connection.response()
    assert response.status == 200, response.body
    if not body.get("stream"):
        whole = json.loads(response.body)
        return whole["choices"], without_cached(whole["usage"])
    told = list(events(response.body))
    assert told[-1] == "[DONE]", told[-2:]
    choices, usage = {}, None
    for event in map(json.loads, told[:-1]):
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            texts = choices.setdefault(choice["index"], {})
            assert "end" not in texts, "something comes after the end"
            for field in ("reasoning_content", "content"):
                texts[field] = texts.get(field, "") + (choice["delta"].get(field) or "")
            if choice["finish_reason"]:
                texts["end"] = choice["finish_reason"]
    return choices, without_cached(usage)


class Load:
    """Clients that ask all the time; the first wrong answer ends it."""

    def __init__(self, cluster, expected, seed):
        self._cluster, self._expected, self._seed = cluster, expected, seed
        self._is_over = False
        self._counts = [0] * CLIENTS  # answers of each client
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._clients = [self._pool.submit(self._ask, client) for client in range(CLIENTS)]

    def _ask(self, client):
        rnd = random.Random(self._seed * CLIENTS + client)
        while not self._is_over:
            number = rnd.randrange(len(QUESTIONS))
            got = answer_to(self._cluster, QUESTIONS[number])
            assert got == self._expected[number], f"question {number} has another answer"
            self._counts[client] += 1

    def check(self):
        for client in self._clients:
            if client.done():
                client.result()  # raises what it met

    def counts(self):
        self.check()
        return list(self._counts)

    def wait_for_everybody(self):
        before = self.counts()
        wait_until(
            lambda: all(now > then for now, then in zip(self.counts(), before)),
            lambda: f"each client's next answer: {before} then, {self._counts} now\n{get(self._cluster.url + '/statusz')[1]}",
        )

    def end(self):
        self._is_over = True
        self._pool.shutdown()
        self.check()
        return sum(self._counts)


def break_one(cluster, rnd):
    """One fault from its beginning to its end; says what it was."""
    role = rnd.choice(("prefill", "decode"))
    number = rnd.randrange(2)
    worker = (cluster.prefills if role == "prefill" else cluster.decodes)[number]
    how = rnd.choice(("kill", "kill", "kill", "stop"))
    if how == "kill":
        worker.kill()
        (cluster.restart_prefill if role == "prefill" else cluster.restart_decode)(number)
    else:
        lost = cluster.router.metric("tandem_router_workers_lost_total")
        with worker.paused():
            wait_until(
                lambda: cluster.router.metric("tandem_router_workers_lost_total") > lost, lambda: f"{worker.name} to be missed"
            )
        cluster.wait_ready()
    return f"{how} {worker.name}"


def test_faults_under_load_lose_double_and_change_no_token(fresh_cluster, is_long):
    seed = int(os.environ.get("TANDEM_CHAOS_SEED", random.randrange(1 << 30) if is_long else 7))
    print(f"TANDEM_CHAOS_SEED={seed}")
    rnd = random.Random(seed)
    settings = {"failover_wait": "10m"} | SILENCE
    with fresh_cluster(num_prefill=2, num_decode=2, router=settings, prefill=SILENCE, decode=SILENCE) as cluster:
        cluster.is_expected_to_log_errors = True
        expected = [answer_to(cluster, body) for body in QUESTIONS]
        load = Load(cluster, expected, seed)
        try:
            for fault in range(int(os.environ.get("TANDEM_CHAOS_FAULTS", LONG_FAULTS if is_long else FAULTS))):
                load.wait_for_everybody()
                print(f"{time.strftime('%H:%M:%S')} fault {fault}: {break_one(cluster, rnd)}", flush=True)
            load.wait_for_everybody()
        finally:
            answers = load.end()
        failovers = cluster.router.metric("tandem_router_failovers_total")
        print(f"{answers} answers, each as undisturbed; {failovers:.0f} times a prompt went on elsewhere")
        cluster.wait_at_rest()
        for worker in (*cluster.prefills.values(), *cluster.decodes.values()):
            for name in ("tandem_replay_mismatches_total", "tandem_kv_transfer_wrong_sums_total"):
                assert worker.metrics().get(f'{name}{{role="decode"}}', 0) == 0


def test_a_killed_router_leaves_no_generation_behind(fresh_cluster):
    """The stream's reader takes all it gets: without the router's death it would run for long."""
    with fresh_cluster(decode={"router_grace": "2s"}) as cluster:
        stream = HeldStream(cluster, n=4).begin()
        wait_until(lambda: cluster.decode.held(), lambda: "a request at decode")
        killed = time.monotonic()
        cluster.router.kill()
        for worker in (cluster.decode, cluster.prefill):
            wait_until(lambda: not worker.held(), lambda: f"{worker.name} holds {worker.held()}")
        print(f"workers held nothing {time.monotonic() - killed:.2f} s after their router had been killed")
        generated = cluster.decode.metric("tandem_generation_tokens_total")
        cluster.replace_router()
        cluster.wait_ready()
        assert cluster.decode.metric("tandem_generation_tokens_total") == generated, "somebody generates for nobody"
        stream.close()
        assert answer_to(cluster, QUESTIONS[0])


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_crash_loops_leave_nothing_in_shared_memory(fresh_cluster, is_long, role):
    with fresh_cluster(lanes=("ucx_shm",)) as cluster:
        cluster.is_expected_to_log_errors = True

        answer = answer_to(cluster, QUESTIONS[0])
        before = segments_of(cluster)
        for _ in range(50 if is_long else 4):
            if role == "prefill":
                cluster.prefill.kill()
                cluster.restart_prefill()
            else:
                cluster.decode.kill()
                cluster.restart_decode()
            assert answer_to(cluster, QUESTIONS[0]) == answer
        cluster.wait_at_rest()
        wait_until(lambda: segments_of(cluster) == before, lambda: f"{before} then, {segments_of(cluster)} now")


def segments_of(cluster):
    """How many segments of shared memory each worker has mapped: none of a dead peer's stays."""
    counts = []
    for process in (cluster.prefill, cluster.decode):
        with open(f"/proc/{process.pid}/maps") as maps:
            names = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}
        counts.append(sum(name.startswith(("/dev/shm/", "/SYSV", "/memfd:")) for name in names))
    return counts
