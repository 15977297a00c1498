"""The same request gives the same tokens and logprobs, to the bit, whatever the chunks, the lane, the batch, the shards, and page famine."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain
from tests.e2e.cluster import get, wait_until

LOGPROBS = {"logprobs": True, "top_logprobs": 3}
QUESTIONS = {
    "short": {"messages": QUESTION} | LOGPROBS,
    "long": {"messages": LONG_QUESTION} | LOGPROBS,
    "thinking": {"messages": LONG_QUESTION, "thinking": True} | LOGPROBS,
    "sampled": {"messages": LONG_QUESTION, "temperature": 0.9, "top_p": 0.95, "seed": 42} | LOGPROBS,
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
    assert all(len(answer.logprobs.content) == MAX_TOKENS for answer in found.values())
    assert len({answer.content + (answer.reasoning or "") for answer in found.values()}) == len(found)
    return found


@pytest.mark.parametrize("chunked_prefill_size", [64, 100, 512])
@pytest.mark.parametrize("lane", ["ucx_shm", "tcp", "ucx_am"])
def test_chunk_size_and_lane_change_no_token(fresh_cluster, usual, chunked_prefill_size, lane):
    options = {"chunked_prefill_size": chunked_prefill_size, "lanes": (lane,)}
    with fresh_cluster(**options, prefill={"prefix_cache": False}, decode={"prefix_cache": False}) as cluster:  # every chunk is computed, every page fetched
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


def drawn_questions(seed, count=16):
    """Questions of other lengths (from a page or less to many chunks of 64), greedy and sampled, of other answers."""
    source = random.Random(seed)
    questions = []
    for _ in range(count):
        sentences = [f"Item {source.randrange(1000)} costs {source.randrange(100)} coins." for _ in range(source.randint(1, 40))]
        fields = {
            "messages": [{"role": "user", "content": " ".join(sentences)}],
            "max_tokens": source.randint(3, 40),
            "thinking": source.random() < 0.3,
        } | LOGPROBS
        if source.random() < 0.5:
            fields |= {"temperature": source.choice([0.5, 1.0, 1.5]), "top_p": source.choice([0.8, 1.0]), "seed": source.getrandbits(63)}
        questions.append(fields)
    return questions


@pytest.mark.parametrize("chunked_prefill_size, num_clients, seed", [(64, 16, 1), (100, 5, 2), (512, 16, 3), (2048, 3, 4)])
def test_any_mix_of_requests_gives_each_its_own_answer(shared_cluster, fresh_cluster, chunked_prefill_size, num_clients, seed):
    """One at a time against up to 16 at once, where each client's next request joins whatever runs then."""
    questions = drawn_questions(seed)
    with shared_cluster.openai() as client:
        alone = [plain(client, **fields) for fields in questions]
    shared_cluster.wait_at_rest()
    with fresh_cluster(chunked_prefill_size=chunked_prefill_size) as cluster, cluster.openai() as client:
        with ThreadPoolExecutor(num_clients) as pool:
            together = list(pool.map(lambda fields: plain(client, **fields), questions))
        assert together == alone
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
        cluster.wait_at_rest()


def test_a_prompt_beyond_every_chunk_size_gives_the_same_answer(fresh_cluster):
    """More than 2,048 tokens: the largest chunk cuts it too."""
    fields = {"messages": [{"role": "user", "content": LONG_QUESTION[0]["content"] * 7}], "max_tokens": 20}
    found = []
    for chunked_prefill_size in (2048, 512, 100):
        with fresh_cluster(chunked_prefill_size=chunked_prefill_size) as cluster, cluster.openai() as client:
            found.append(plain(client, **fields))
    assert found[0].usage.prompt_tokens > 2048
    assert found == [found[0]] * 3


def test_waiting_for_pages_changes_no_token(fresh_cluster, usual):
    """Room for two or three of sixteen requests."""
    with fresh_cluster(kv_cache_tokens=1280, context_length=1280) as cluster:
        for name, same in all_at_once(cluster, copies=4).items():
            assert same == [usual[name]] * 4
        cluster.wait_at_rest()


@pytest.mark.parametrize("host_tokens, grows", [(0, "tandem_replayed_tokens_total"), (4096, "tandem_resumed_from_host_reqs_total")])
def test_retracted_sequences_go_on_where_they_were(shared_cluster, fresh_cluster, host_tokens, grows):
    """Room for the prompts of two requests, not for both answers: one gives its pages back and is replayed, or goes on
    from the host."""
    fields = {"max_tokens": 200, "temperature": 0.9, "seed": 5}
    with shared_cluster.openai() as client:
        undisturbed = plain(client, **fields)
    famine = {"kv_cache_tokens": 256, "context_length": 256, "decode": {"retraction_host_tokens": host_tokens}}
    with fresh_cluster(**famine) as cluster, cluster.openai() as client:

        def num_reqs(where):
            return cluster.decode.metric(f"tandem_num_{where}_reqs")

        # As a rule the one that is retracted has tokens already; where its prompt was late, once more.
        for num_rounds in range(1, 21):
            with ThreadPoolExecutor(4) as pool:
                with cluster.prefill.paused():
                    running = [pool.submit(plain, client, **fields) for _ in range(4)]
                    wait_until(lambda: num_reqs("running") >= 2, lambda: "two with pages")
                    wait_until(lambda: num_reqs("running") + num_reqs("queue") == 4, lambda: "four at decode")
                assert [future.result() for future in running] == [undisturbed] * 4
            assert cluster.decode.metric("tandem_retracted_reqs_total") >= num_rounds
            if cluster.decode.metric(grows) > 0:
                break
        else:
            raise AssertionError(f"{grows} is 0 after 20 rounds")
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
        assert cluster.decode.metric("tandem_retraction_host_pages_used") == 0
        cluster.wait_at_rest()
