"""The router says that prefill is short while long prompts wait, with the number of workers it suggests, and its end."""

import itertools
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.cluster import get, wait_until

SHORT = "tandem_router_pool_short"
SUGGESTED = "tandem_router_pool_workers_suggested"
# Any line is longer than a first token may take; no answer is slow, so that decode has room.
LIMITS = {"ttft_limit": "1ms", "itl_limit": "1h", "hold": "200ms"}
CALLERS = 6
PROMPT_TOKENS = 1000


def states(cluster, pool):
    """(whether it is short, workers suggested)"""
    metrics = cluster.router.metrics()
    label = f'{{role="router",pool="{pool}"}}'
    return metrics[SHORT + label], metrics[SUGGESTED + label]


def test_long_prompts_make_prefill_short_until_they_end(fresh_cluster):
    with fresh_cluster(router={"pool_shortage": LIMITS}) as cluster:
        wait_until(lambda: states(cluster, "prefill") == (0, 1), lambda: states(cluster, "prefill"))
        is_over = threading.Event()
        seeds = itertools.count()

        def ask():
            while not is_over.is_set():
                draw = random.Random(next(seeds))
                tokens = [draw.randrange(100, 900) for _ in range(PROMPT_TOKENS)]
                body = {"input_ids": tokens, "sampling_params": {"temperature": 0, "max_new_tokens": 2}}
                status, _, text = cluster.post(body, "/generate")
                assert status == 200, text

        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [pool.submit(ask) for _ in range(CALLERS)]
            try:
                wait_until(lambda: states(cluster, "prefill") == (1, 2), lambda: get(cluster.url + "/statusz")[1])
            finally:
                is_over.set()
            for caller in callers:
                caller.result()
        wait_until(lambda: states(cluster, "prefill") == (0, 1), lambda: get(cluster.url + "/statusz")[1])
        wait_until(lambda: states(cluster, "decode") == (0, 1), lambda: get(cluster.url + "/statusz")[1])
        page = get(cluster.url + "/statusz")[1]
        assert re.search(r"^pool short: none; prefill: pressure 0\.00, 0 tokens in line, [1-9]\d* tokens/s", page, re.MULTILINE), page
        changes = [line for line in cluster.router.log.read_text().splitlines() if "which pool is short has changed" in line]
        assert any(re.search(r"(prefill|both); prefill: pressure", line) for line in changes), changes
        assert re.search(r"none; prefill: pressure", changes[-1]), changes
        finished = cluster.router.metric("tandem_router_finished_prompts_total")
        assert 0 < cluster.router.metric("tandem_router_late_prompts_total", limit="ttft") <= finished
        assert cluster.router.metric("tandem_router_late_prompts_total", limit="itl") == 0
