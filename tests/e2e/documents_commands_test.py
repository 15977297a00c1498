"""The guides' commands, translated by tools/translate_args and scaled down to two CPU ranks, start and answer alike.

Layouts, drafts and lanes change no bit, so every one of them gives the same words. By default those that differ in what
they start; all with --long.
"""

import pytest

from tests.e2e.asking import plain
from tests.e2e.cluster import ROOT, Cluster, Options
from tools.translate_args import commands, documents_commands, translate

TINY = ROOT / "checkpoints" / "tandem-tiny"
QUESTION = [{"role": "user", "content": "Solve this problem step by step: What is 37% of 2496?"}]
RANKS = 2
DISTINCT = ("throughput", "latency", "two hosts, fp8", "prefill and decode")
# The test's own, or the machine's: addresses, who may come near, which checkpoint.
NOT_THE_TESTS = {
    "host", "port", "rpc_port", "admin_port", "bootstrap_port", "listen_host", "advertise_host", "peers", "prefill_workers",
    "decode_workers", "served_model_name", "chat",
}  # fmt: skip


def options_of(texts):
    shared, process = {}, {"prefill_worker": {}, "decode_worker": {}, "router": {}}
    for text in texts:
        (command,) = commands.read(text, documents_commands.DEFINITIONS.items())
        for service, config in translate.translate(command, model_path=str(TINY), ranks_max=RANKS).configs.items():
            shared |= config["cluster"]
            process[service] |= {k: v for k, v in config["process"].items() if k not in NOT_THE_TESTS}
    del shared["model_path"]
    return Options(
        shared=shared, prefill=process["prefill_worker"], decode=process["decode_worker"], router=process["router"]
    )


def all_commands():
    servers = dict(documents_commands.SERVERS)
    pair = [servers.pop("prefill"), servers.pop("decode"), documents_commands.ROUTER]
    return {name: [text] for name, text in servers.items()} | {"prefill and decode": pair}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("plain") / "cluster", TINY) as cluster, cluster.openai() as client:
        return plain(client, messages=QUESTION, max_tokens=40, temperature=0).content


@pytest.mark.parametrize("name", all_commands())
def test_a_guides_command_on_two_ranks_answers_as_one_rank_does(name, expected, is_long, tmp_path):
    if name not in DISTINCT and not is_long:
        pytest.skip("with --long")
    options = options_of(all_commands()[name])
    sizes = [value for config in (options.prefill, options.decode) for key, value in config.items() if "parallel_size" in key]
    assert set(sizes) == {RANKS}
    with Cluster(tmp_path / "cluster", TINY, options) as cluster, cluster.openai() as client:
        assert plain(client, messages=QUESTION, max_tokens=40, temperature=0).content == expected
