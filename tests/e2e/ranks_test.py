"""Workers on several ranks answer as one process does, and say what their ranks sent; layouts that cannot work stop its start."""

import re
import subprocess

import pytest

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.cluster import START_SECONDS, binary, get
from tests.e2e.one_process_test import MAX_TOKENS, generate, prompt_ids, text_of, tokenizer  # noqa: F401

LAYERS = 2  # of v32-micro
FIELDS = [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 11}]


@pytest.mark.parametrize(
    "kv_cache_dtype, record_bytes, lane", [("fp8_e4m3", 788, "ucx_shm"), ("bfloat16", 1284, "tcp")], ids=["fp8", "bfloat16"]
)
def test_two_ranks_answer_as_one_process_does(fresh_cluster, micro, tokenizer, kv_cache_dtype, record_bytes, lane):  # noqa: F811
    prompt = prompt_ids(tokenizer, LONG_QUESTION, thinking=False)
    options = {"kv_cache_dtype": kv_cache_dtype, "lanes": (lane,), "chunked_prefill_size": 100}
    options["prefill"] = {"context_parallel_size": 2, "expert_parallel_size": 2}
    options["decode"] = {"data_parallel_size": 2, "expert_parallel_size": 2}
    with fresh_cluster(**options) as cluster, cluster.openai() as client:
        for sampling in FIELDS:
            tokens = generate(micro, prompt, kv_cache_dtype=kv_cache_dtype, **sampling)
            answer = plain(client, messages=LONG_QUESTION, max_tokens=MAX_TOKENS, **sampling)
            assert answer.content == text_of(tokenizer, tokens)
        cluster.wait_at_rest()
        _, text = get(cluster.prefill.admin + "/metrics")
        name = 'tandem_collective_sent_bytes_total{role="prefill",collective="all_gather",rank='
        series = re.findall(rf'^{re.escape(name)}"(\d)"\}} (\S+)$', text, re.MULTILINE)
        assert sorted(rank for rank, _ in series) == ["0", "1"]
        computed = cluster.prefill.metric("tandem_prompt_tokens_total")
        assert sum(float(sent) for _, sent in series) == computed * LAYERS * record_bytes
        assert "\n1 all_gather " in get(cluster.prefill.admin + "/statusz")[1]
        assert "\n1 all_to_all " in get(cluster.decode.admin + "/statusz")[1]


def test_sides_of_different_layouts_answer_as_one_process_does(fresh_cluster, micro, tokenizer):  # noqa: F811
    prompt = prompt_ids(tokenizer, LONG_QUESTION, thinking=False)
    tensor_parallel = {"tensor_parallel_size": 2, "expert_parallel_size": 2}
    with fresh_cluster(prefill=tensor_parallel, decode={"tensor_parallel_size": 2}) as cluster, cluster.openai() as client:
        for sampling in FIELDS:
            tokens = generate(micro, prompt, **sampling)
            assert plain(client, messages=LONG_QUESTION, max_tokens=MAX_TOKENS, **sampling).content == text_of(tokenizer, tokens)
        cluster.wait_at_rest()
        for worker in (cluster.prefill, cluster.decode):
            assert "\n1 all_gather " in get(worker.admin + "/statusz")[1]


REFUSED = {
    "process.context_parallel_strategy zigzag is not served": {"context_parallel_strategy": "zigzag"},
    "process.context_parallel_size 2 with process.device cuda:0": {"device": "cuda:0"},
    "process.chunked_prefill_size 1 is less than process.context_parallel_size 2": {"chunked_prefill_size": 1},
    "process.context_parallel_size 2 with process.data_parallel_size 4": {"data_parallel_size": 4},
    "process.context_parallel_size 2 with process.tensor_parallel_size 2": {"tensor_parallel_size": 2},
    "process.expert_parallel_size 3 is neither 1 nor the worker's number of ranks, 2": {"expert_parallel_size": 3},
    "process.num_threads 1 is less than process.context_parallel_size 2": {"num_threads": 1},
}


@pytest.mark.parametrize("refusal, settings", REFUSED.items(), ids=[next(iter(s)) for s in REFUSED.values()])
def test_a_layout_that_cannot_work_stops_the_start_naming_the_field(refusal, settings):
    command = [binary("prefill_worker/prefill_worker"), "--set=process.context_parallel_size=2", "--validate_only"]
    command += [f"--set=process.{name}={value}" for name, value in settings.items()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    assert result.returncode == 2
    assert refusal in result.stderr


def test_a_decode_worker_has_no_such_setting():
    command = [binary("decode_worker/decode_worker"), "--set=process.context_parallel_size=2", "--validate_only"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    assert result.returncode == 2
    assert "process.context_parallel_size" in result.stderr
