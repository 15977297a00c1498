"""HiSparse through real processes: the tokens and logprobs of a cluster without it, with prompts from shorter than a device buffer to far longer than the device pool, and with many at once; what operators see of it."""

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import cluster as clusters
from tests.e2e.cluster import MODEL, get

TINY = clusters.ROOT / "checkpoints" / "tandem-tiny"  # index_topk 128
CONTEXT = 24576
# Device memory of 12,288 tokens: index keys of 24,576 tokens on the host, and buffers for more than eight requests.
HISPARSE = {"kv_cache_tokens": 12288, "hisparse": {"enabled": True, "host_to_device_ratio": 2}}
MAX_TOKENS = 32
PATIENCE = 3600  # of clients: prompts of thousands of tokens take minutes on a machine that does much else
RECORD_BYTES = 656


def prompt(seed, num_tokens):
    draw = random.Random(seed)
    return [draw.randrange(300, 2500) for _ in range(num_tokens)]


def ask(client, tokens, **fields):
    """(tokens' texts, logprobs) of the answer."""
    body = {"max_tokens": MAX_TOKENS, "temperature": 0, "logprobs": 1} | fields
    completion = client.completions.create(model=MODEL, prompt=tokens, extra_body={"ignore_eos": True}, **body)
    (choice,) = completion.choices
    assert completion.usage.prompt_tokens == len(tokens)
    return choice.logprobs.tokens, choice.logprobs.token_logprobs


def ask_at_once(client, prompts, **fields):
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda tokens: ask(client, tokens, **fields), prompts))


def tiny(folder, **options):
    return clusters.Cluster(
        folder, TINY, clusters.Options(context_length=CONTEXT, kv_cache_tokens=CONTEXT, **options))


@pytest.fixture(scope="module")
def off(tmp_path_factory):
    with tiny(tmp_path_factory.mktemp("off") / "cluster") as cluster:
        yield cluster.openai(timeout=PATIENCE)


@pytest.fixture(scope="module")
def on(tmp_path_factory):
    with tiny(tmp_path_factory.mktemp("on") / "cluster", decode=HISPARSE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(on):
    return on.openai(timeout=PATIENCE)


@pytest.mark.parametrize("num_tokens", [6, 2048, 5000, 20000])
@pytest.mark.parametrize("fields", [{}, {"temperature": 0.9, "seed": 7}], ids=["greedy", "sampled"])
def test_tokens_and_logprobs_are_those_without_it(off, on, client, is_long, num_tokens, fields):
    if num_tokens == 20000 and not is_long:
        pytest.skip("two prompts of 20,000 tokens take a minute: with --long")
    tokens = prompt(num_tokens, num_tokens)
    assert ask(client, tokens, **fields) == ask(off, tokens, **fields)
    on.wait_at_rest()


def test_eight_long_requests_at_once_give_the_same_tokens(off, on, client):
    prompts = [prompt(100 + i, 2000 + i) for i in range(8)]
    assert ask_at_once(client, prompts) == ask_at_once(off, prompts)
    on.wait_at_rest()
    assert on.decode.metric("tandem_retracted_reqs_total") == 0


def test_operators_see_hits_misses_bytes_and_both_pools(on, client):
    before = on.decode.metrics()
    ask(client, prompt(1, 1000))
    on.wait_at_rest()
    after = on.decode.metrics()

    assert on.decode.metric("tandem_hisparse_device_pages") >= 8 * 5
    assert on.decode.metric("tandem_hisparse_device_pages_used") == 0
    assert on.decode.metric("tandem_kv_pages") == CONTEXT / 64
    page = get(on.decode.admin + "/statusz")[1]
    assert "device pages" in page and "layer hits misses" in page

    def grown(name):
        (series,) = [key for key in after if key.split("{")[0] == f"tandem_hisparse_{name}"]
        return after[series] - before[series]

    if clusters.DRAFTS:
        return  # how many rows a step has is up to acceptance
    # 31 rows in 5 layers select 128 tokens each; the first token is prefill's.
    assert grown("hits_total") + grown("misses_total") == 31 * 5 * 128
    assert 5 * 128 <= grown("misses_total") < grown("hits_total") + 31 * 5 * 128
    assert grown("swapped_in_bytes_total") == grown("misses_total") * RECORD_BYTES
    assert grown("written_back_bytes_total") == 30 * 5 * RECORD_BYTES
    assert grown("windows_total") == 31 * 5
    assert grown("swap_in_seconds_sum") > 0
    assert grown("swap_in_seconds_count") == 31  # steps


def test_a_prompt_larger_than_the_host_pool_is_refused_before_prefill(on):
    steps = on.prefill.metric("tandem_engine_steps_total")
    with pytest.raises(Exception) as refused:
        ask(on.openai(), prompt(3, CONTEXT + 1))
    assert refused.value.status_code == 400
    assert on.prefill.metric("tandem_engine_steps_total") == steps


def test_page_famine_on_both_sides_changes_no_token(off, tmp_path):
    """Host pages for three of the six, buffers for two of them."""
    prompts = [prompt(200 + i, 600) for i in range(6)]
    scarce = {"kv_cache_tokens": 1216, "hisparse": {"enabled": True, "host_to_device_ratio": 2}}
    with tiny(tmp_path / "cluster", decode=scarce) as cluster:
        answers = ask_at_once(cluster.openai(timeout=PATIENCE), prompts, max_tokens=150)
        cluster.wait_at_rest()
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
    assert answers == ask_at_once(off, prompts, max_tokens=150)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("top_k=64", "process.hisparse.top_k 64, allowed the model's index_topk 128, or 0 for it"),
        ("device_buffer_size=64", "process.hisparse.device_buffer_size 64, allowed at least top_k 128"),
        ("device_buffer_size=200", "process.hisparse.device_buffer_size 200, allowed multiples of a page's 64"),
        ("host_to_device_ratio=6", "process.hisparse.host_to_device_ratio 6, allowed at most 5."),
        ("host_to_device_ratio=0.5", "process.hisparse.host_to_device_ratio"),
    ],
)
def test_bad_settings_stop_the_start(setting, message):
    ended = subprocess.run(
        [
            clusters.binary("decode_worker/decode_worker"),
            f"--set=cluster.model_path={TINY}",
            "--set=process.rpc_port=0",
            "--set=process.admin_port=0",
            "--set=process.hisparse.enabled=true",
            f"--set=process.hisparse.{setting}",
        ],
        capture_output=True, text=True, timeout=clusters.START_SECONDS)
    assert ended.returncode == 2
    assert message in ended.stdout + ended.stderr
