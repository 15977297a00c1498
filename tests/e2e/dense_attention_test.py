"""Dense attention beyond index_topk through real processes: who answers, who is refused, who does not start."""

import subprocess

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.cluster import START_SECONDS, binary, get, wait_until

SHARED = {"dense_attention_max_context": 4096}  # v32-micro chooses 16 positions


def answer(cluster):
    with cluster.openai() as client:
        return plain(client, messages=LONG_QUESTION, max_tokens=24, temperature=0).content


def test_it_changes_answers_and_a_pair_of_two_limits_is_not_used_and_says_why(fresh_cluster):
    with fresh_cluster() as cluster:
        sparse = answer(cluster)
    with fresh_cluster(num_spare=1, router={"worker_changes": True}, shared=SHARED) as cluster:
        dense = answer(cluster)
        assert dense != sparse, "the limit reached no worker"
        cluster.start_decode(1, dense_attention_max_context=0)
        other = cluster.decodes[1]
        status, _, told = cluster.post({"url": cluster.addresses("decode", [1])[0], "worker_type": "decode"}, "/workers")
        assert status == 202, told
        wait_until(lambda: "dense_threshold" in get(other.admin + "/statusz")[1], "decode says what differs")
        assert answer(cluster) == dense


def test_a_limit_below_index_topk_stops_the_start(micro):
    command = [
        binary("decode_worker/decode_worker"),
        *("--set", f"cluster.model_path={micro}"),
        *("--set", "cluster.dense_attention_max_context=15"),
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode != 0
    assert "cluster.dense_attention_max_context is 15, must be at least index_topk 16" in done.stderr, done.stderr
