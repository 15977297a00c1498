"""The same request gives the same tokens, whatever the chunks, the lane, the batch, the shards, and page famine."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain
from tests.e2e.cluster import get

QUESTIONS = {
    "short": {"messages": QUESTION},
    "long": {"messages": LONG_QUESTION},
    "thinking": {"messages": LONG_QUESTION, "thinking": True},
    "sampled": {"messages": LONG_QUESTION, "temperature": 0.9, "top_p": 0.95, "seed": 42},
}
MAX_TOKENS = 70


def answers(cluster):
    with cluster.openai() as client:
        found = {name: plain(client, max_tokens=MAX_TOKENS, **fields) for name, fields in QUESTIONS.items()}
    cluster.wait_at_rest()
    return found


@pytest.fixture(scope="module")
def usual(shared_cluster):
    found = answers(shared_cluster)
    assert found["long"].usage.prompt_tokens > 256, "several pages and several chunks of 100"
    assert len({answer.content + (answer.reasoning or "") for answer in found.values()}) == len(found)
    return found


@pytest.mark.parametrize("chunked_prefill_size", [64, 100, 512])
@pytest.mark.parametrize("lane", ["ucx_shm", "ucx_am"])
def test_chunk_size_and_lane_change_no_token(fresh_cluster, usual, chunked_prefill_size, lane):
    with fresh_cluster(chunked_prefill_size=chunked_prefill_size, lanes=(lane,)) as cluster:
        assert f"usable over {lane}" in get(cluster.url + "/statusz")[1]
        assert answers(cluster) == usual
        prompt_tokens = [answer.usage.prompt_tokens for answer in usual.values()]
        chunks = sum(-(-tokens // chunked_prefill_size) for tokens in prompt_tokens)
        assert cluster.prefill.metric("tandem_engine_steps_total") == chunks
        assert cluster.decode.metric("tandem_kv_transfer_fetched_bytes_total") >= sum(prompt_tokens) * 788 * 2
        assert cluster.decode.metric("tandem_kv_transfer_wrong_sums_total") == 0


def all_at_once(cluster, copies):
    """{name: answers} of every question asked `copies` times, everything at the same time."""
    with cluster.openai() as client, ThreadPoolExecutor(copies * len(QUESTIONS)) as pool:
        running = {
            name: [pool.submit(plain, client, max_tokens=MAX_TOKENS, **fields) for _ in range(copies)]
            for name, fields in QUESTIONS.items()
        }
        return {name: [future.result() for future in futures] for name, futures in running.items()}


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_crowd_on_any_number_of_shards_changes_no_token(fresh_cluster, usual, num_shards):
    with fresh_cluster(num_shards=num_shards) as cluster:
        for name, same in all_at_once(cluster, copies=4).items():
            assert same == [usual[name]] * 4
        cluster.wait_at_rest()


def test_waiting_for_pages_changes_no_token(fresh_cluster, usual):
    """Room for two or three of sixteen requests."""
    with fresh_cluster(kv_cache_tokens=1280, context_length=1280) as cluster:
        for name, same in all_at_once(cluster, copies=4).items():
            assert same == [usual[name]] * 4
        cluster.wait_at_rest()


def test_retracted_sequences_go_on_where_they_were(shared_cluster, fresh_cluster):
    """Room for the prompts of four requests, not for their answers: some give their pages back and are replayed."""
    fields = {"max_tokens": 200, "temperature": 0.9, "seed": 5}
    with shared_cluster.openai() as client:
        undisturbed = plain(client, **fields)
    with fresh_cluster(kv_cache_tokens=384, context_length=384) as cluster, cluster.openai() as client:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda _: plain(client, **fields), range(4)))
        assert together == [undisturbed] * 4
        assert cluster.decode.metric("tandem_retracted_reqs_total") > 0
        assert cluster.decode.metric("tandem_replayed_tokens_total") > 0
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
        cluster.wait_at_rest()
