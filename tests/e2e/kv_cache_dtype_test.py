"""A cluster with BF16 cache records: it answers as one process with such records does, over either lane."""

import pytest

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.one_process_test import MAX_TOKENS, generate, prompt_ids, text_of, tokenizer  # noqa: F401

BYTES_PER_TOKEN = 2 * (1152 + 132)  # of v32-micro's two layers
FIELDS = [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 11}]


@pytest.mark.parametrize("lane", ["ucx_shm", "ucx_am"])
def test_bf16_records_travel_and_answer_as_in_one_process(fresh_cluster, micro, tokenizer, lane):  # noqa: F811
    prompt = prompt_ids(tokenizer, LONG_QUESTION, thinking=False)
    with fresh_cluster(kv_cache_dtype="bfloat16", lanes=(lane,)) as cluster, cluster.openai() as client:
        for sampling in FIELDS:
            tokens = generate(micro, prompt, kv_cache_dtype="bfloat16", **sampling)
            assert tokens != generate(micro, prompt, **sampling), "the format makes no difference"
            answer = plain(client, messages=LONG_QUESTION, max_tokens=MAX_TOKENS, **sampling)
            assert answer.content == text_of(tokenizer, tokens)
            assert answer.usage.completion_tokens == MAX_TOKENS
        # Whole pages travel, 64 tokens each; decode still has those before the last token's when it is asked again.
        num_pages = -(-len(prompt) // 64)
        num_fetched = num_pages + (len(FIELDS) - 1) * (num_pages - (len(prompt) - 1) // 64)
        assert cluster.decode.metric("tandem_kv_transfer_fetched_bytes_total") == num_fetched * 64 * BYTES_PER_TOKEN
        assert cluster.decode.metric("tandem_kv_transfer_wrong_sums_total") == 0
        cluster.wait_at_rest()
