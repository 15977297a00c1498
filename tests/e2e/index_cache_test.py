"""Index Cache through real processes: who answers, who is refused, who does not start."""

import subprocess

import pytest

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.cluster import START_SECONDS, Cluster, Options, binary, get, wait_until

SHARED = {"index_topk_pattern": "FS"}  # v32-micro has two layers


def answer(cluster):
    with cluster.openai() as client:
        return plain(client, messages=LONG_QUESTION, max_tokens=24, temperature=0).content


def test_a_pair_that_shares_choices_answers_the_same_again_and_otherwise_than_one_that_does_not(tmp_path, micro):
    answers = {}
    for name, shared in {"own": {}, "shared": SHARED}.items():
        with Cluster(tmp_path / name, micro, Options(shared=shared)) as cluster:
            answers[name] = answer(cluster)
            assert answer(cluster) == answers[name]
    assert answers["own"] != answers["shared"], "the pattern reached no worker"


def test_a_pair_of_two_patterns_is_not_used_and_says_why(fresh_cluster):
    with fresh_cluster(num_spare=1, router={"worker_changes": True}, shared={"index_topk_pattern": ""}) as cluster:
        cluster.start_decode(1, **SHARED)
        other = cluster.decodes[1]
        status, _, told = cluster.post({"url": cluster.addresses("decode", [1])[0], "worker_type": "decode"}, "/workers")
        assert status == 202, told
        wait_until(lambda: "index_cache_pattern" in get(other.admin + "/statusz")[1], "decode says what differs")


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("index_topk_pattern=FSF", "cluster.index_topk_pattern has 3 letters, must have one for each of num_hidden_layers 2"),
        ("index_topk_pattern=SF", "cluster.index_topk_pattern begins with S"),
        ("index_topk_pattern=FX", "cluster.index_topk_pattern has 'X' for layer 1"),
    ],
)
def test_a_pattern_that_cannot_be_stops_the_start(micro, setting, rule):
    command = [binary("decode_worker/decode_worker"), "--set", f"cluster.model_path={micro}", "--set", f"cluster.{setting}"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode != 0 and rule in done.stderr, done.stderr
