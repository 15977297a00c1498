"""The prefix cache through real processes: what is computed and told changes, answers never do."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, plain, streamed
from tests.e2e.cluster import wait_until

PAGE = 64
GREEDY = {"temperature": 0, "ignore_eos": True, "max_new_tokens": 8}


def generate(cluster, tokens, **body):
    status, _, text = cluster.post({"input_ids": tokens, "sampling_params": GREEDY} | body, "/generate")
    assert status == 200, text
    return json.loads(text)


def random_tokens(count, seed):
    draw = random.Random(seed)
    return [draw.randrange(100, 900) for _ in range(count)]


def joinable(num_tokens):
    """Whole pages before the last token."""
    return (num_tokens - 1) // PAGE * PAGE


def flush(cluster, count):
    status, _, text = cluster.post(b"", "/flush_cache")
    assert status == 200 and text == "prefix caches of 2 workers\n", text
    wait_until(
        lambda: cluster.prefill.metric("tandem_prefix_cache_flushes_total") == count,
        lambda: cluster.prefill.metrics(),
    )


def test_the_second_of_two_equal_requests_is_told_what_was_cached(fresh_cluster):
    with fresh_cluster() as cluster, cluster.openai() as client:
        cold = plain(client, messages=LONG_QUESTION)
        computed = cluster.prefill.metric("tandem_prompt_tokens_total")
        warm = plain(client, messages=LONG_QUESTION)
        in_pieces = streamed(client, messages=LONG_QUESTION)
        prompt_tokens = cold.usage.prompt_tokens
        assert prompt_tokens > 4 * PAGE
        assert (cold.cached_tokens, warm.cached_tokens) == (0, joinable(prompt_tokens))
        assert in_pieces.cached_tokens == joinable(prompt_tokens)
        assert warm == cold
        assert (in_pieces.content, in_pieces.usage) == (cold.content, cold.usage)
        cluster.wait_at_rest()
        assert cluster.prefill.metric("tandem_prefix_cache_hits_total") == 2
        assert cluster.prefill.metric("tandem_cached_prompt_tokens_total") == 2 * joinable(prompt_tokens)
        assert cluster.prefill.metric("tandem_prompt_tokens_total") == computed + 2 * (
            prompt_tokens - joinable(prompt_tokens)
        )

        flush(cluster, 1)
        flushed = plain(client, messages=LONG_QUESTION)
        assert flushed.cached_tokens == 0 and flushed == cold


def test_generate_tells_it_as_sglang_does(fresh_cluster):
    with fresh_cluster() as cluster:
        tokens = random_tokens(300, seed=1)
        first, second = generate(cluster, tokens), generate(cluster, tokens)
        assert first["meta_info"]["cached_tokens"] == 0
        assert second["meta_info"]["cached_tokens"] == joinable(300) == 256
        assert second["output_ids"] == first["output_ids"]
        choices = generate(cluster, tokens, sampling_params=GREEDY | {"n": 3})
        assert [choice["meta_info"]["cached_tokens"] for choice in choices] == [256] * 3
        with_logprobs = {"return_logprob": True, "logprob_start_len": 130}
        told, again = (generate(cluster, tokens, **with_logprobs)["meta_info"] for _ in range(2))
        assert told["cached_tokens"] == 128, "what is behind token 130 is computed for its logprobs"
        assert told["input_token_logprobs"] == again["input_token_logprobs"]
        cold = generate(cluster, tokens, cache_salt="another tenant", **with_logprobs)["meta_info"]
        assert cold["cached_tokens"] == 0
        assert cold["input_token_logprobs"] == told["input_token_logprobs"]


@pytest.mark.parametrize("chunked_prefill_size", [64, 100])
def test_conversations_in_a_small_pool_are_answered_as_without_a_cache(fresh_cluster, chunked_prefill_size):
    """Turns of several conversations with a common beginning, more than the pool holds, at the same time."""
    beginning = random_tokens(150, seed=2)
    conversations = [beginning + random_tokens(20, seed=10 + i) for i in range(5)]

    def talk(cluster, conversation, seed):
        turns, cached = [], []
        for turn in range(4):
            answer = generate(cluster, conversation)
            turns.append(answer["output_ids"])
            cached.append(answer["meta_info"]["cached_tokens"])
            conversation = conversation + answer["output_ids"] + random_tokens(90, seed=seed + turn)
        return turns, cached

    def talk_all(cluster):
        with ThreadPoolExecutor(len(conversations)) as pool:
            talks = [pool.submit(talk, cluster, c, 100 * i) for i, c in enumerate(conversations)]
            return [future.result() for future in talks]

    options = {"chunked_prefill_size": chunked_prefill_size}
    with fresh_cluster(**options, prefill={"prefix_cache": False}) as cluster:
        without = talk_all(cluster)
        assert all(cached == [0] * 4 for _, cached in without)
    with fresh_cluster(**options, prefill={"kv_cache_tokens": 16 * PAGE}) as cluster:
        rounds = [talk_all(cluster) for _ in range(2)]
        cluster.wait_at_rest()
        for found in rounds:
            assert [turns for turns, _ in found] == [turns for turns, _ in without]
        assert sum(sum(cached) for found in rounds for _, cached in found) > 10 * PAGE
        assert cluster.prefill.metric("tandem_prefix_cache_evicted_pages_total") > 0
        assert cluster.prefill.metric("tandem_prefix_cache_distrusts_total") == 0


def test_a_restarted_worker_begins_cold(fresh_cluster):
    with fresh_cluster() as cluster:
        tokens = random_tokens(200, seed=3)
        before = generate(cluster, tokens)
        assert generate(cluster, tokens)["meta_info"]["cached_tokens"] == 192
        cluster.prefill.stop()
        cluster.restart_prefill()
        after = generate(cluster, tokens)
        assert after["meta_info"]["cached_tokens"] == 0
        assert after["output_ids"] == before["output_ids"]
        assert generate(cluster, tokens)["meta_info"]["cached_tokens"] == 192


def test_decode_fetches_no_page_twice_and_routers_hear_of_every_page(fresh_cluster):
    with fresh_cluster(num_prefill=2, router={"policy": "prefix"}) as cluster:
        tokens = random_tokens(400, seed=4)
        first = generate(cluster, tokens)
        cluster.wait_at_rest()
        fetched = cluster.decode.metric("tandem_kv_transfer_fetched_bytes_total")
        warm = next(p for p in cluster.prefills.values() if p.metric("tandem_prefix_cache_pages") > 0)
        # The router hears of pages within a heartbeat or two of their step: it is asked until it has.
        wait_until(
            lambda: generate(cluster, tokens[:390] + random_tokens(5, seed=5))["meta_info"]["cached_tokens"] == 384
            and cluster.router.metric("tandem_router_routed_cached_tokens_total") >= 384,
            lambda: cluster.router.metrics(),
        )
        again = generate(cluster, tokens)
        assert again["output_ids"] == first["output_ids"]
        assert again["meta_info"]["cached_tokens"] == 384
        cluster.wait_at_rest()
        assert warm.metric("tandem_prefix_cache_hits_total") > 0
        held = cluster.decode.metric("tandem_held_prompt_tokens_total")
        hits = cluster.decode.metric("tandem_prefix_cache_hits_total")
        assert held == hits * 384
        assert cluster.decode.metric("tandem_kv_transfer_fetched_bytes_total") < fetched * (1 + hits / 2)


def test_choices_of_a_warm_prompt_are_those_of_a_cold_one(fresh_cluster):
    tokens = random_tokens(260, seed=6)
    hot = {"temperature": 1.0, "ignore_eos": True, "max_new_tokens": 80, "sampling_seed": 7, "n": 3}
    with fresh_cluster(prefill={"prefix_cache": False}, decode={"prefix_cache": False}) as cluster:
        cold = [choice["output_ids"] for choice in generate(cluster, tokens, sampling_params=hot)]
        assert cluster.decode.metric("tandem_held_prompt_tokens_total") == 0
    with fresh_cluster(decode={"kv_cache_tokens": 20 * PAGE}) as cluster:
        for _ in range(3):
            assert [choice["output_ids"] for choice in generate(cluster, tokens, sampling_params=hot)] == cold
        cluster.wait_at_rest()
        assert cluster.decode.metric("tandem_held_prompt_tokens_total") == 2 * 256


@pytest.mark.parametrize(
    ("num_drafts", "decode"),
    [(0, {}), (2, {"hisparse": {"enabled": True, "device_buffer_size": 64, "host_to_device_ratio": 2}})],
    ids=["plain", "drafts and buffers"],
)
def test_a_second_turn_finds_the_answer_before_it_at_decode_and_reads_as_from_cold(fresh_cluster, num_drafts, decode):
    first = random_tokens(150, seed=7)
    answered = {}
    for keeps in (False, True):
        with fresh_cluster(
            num_drafts=num_drafts,
            prefill={"prefix_cache": keeps},
            decode=decode | {"prefix_cache": keeps, "prefix_cache_generated_tokens": keeps},
        ) as cluster:
            ask = {"sampling_params": GREEDY | {"max_new_tokens": 120}, "return_logprob": True}
            turn = generate(cluster, first, **ask)
            tokens = first + turn["output_ids"] + random_tokens(40, seed=8)
            second = generate(cluster, tokens, **ask)
            answered[keeps] = [(t["output_ids"], t["meta_info"]["output_token_logprobs"]) for t in (turn, second)]
            # Prefill has the first prompt alone: what decode holds is not what prefill need not compute.
            assert second["meta_info"]["cached_tokens"] == (joinable(150) if keeps else 0)
            cluster.wait_at_rest()
            kept = cluster.decode.metric("tandem_prefix_cache_generated_pages_total")
            held = cluster.decode.metric("tandem_held_prompt_tokens_total")
            # 150 + 119 and 310 + 119 tokens have records; of their 4 and 6 pages, 2 and 4 are the prompts'.
            assert (kept, held) == ((2 + 2, 256) if keeps else (0, 0))
    assert answered[True] == answered[False]
