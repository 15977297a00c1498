"""Workers that come and go while the router serves: by a file, by a name, and with faults in either."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.cluster import get, wait_until

INTERVAL = "100ms"


class WorkerFile:
    """What the router is to read; replaced whole, as a mounted ConfigMap is."""

    def __init__(self, path):
        self.path = path

    def write(self, text):
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    def list(self, cluster, prefills, decodes):
        lists = {"prefill": prefills, "decode": decodes}
        self.write("".join(f"{r}_workers: {json.dumps(cluster.addresses(r, n))}\n" for r, n in lists.items()))


@pytest.fixture
def worker_file(tmp_path):
    return WorkerFile(tmp_path / "workers.yaml")


def found_by(discovery):
    """Settings of a router that is told of no worker but by discovery, and uses all alike."""
    found = {"prefill_workers": [], "decode_workers": [], "discovery": {"interval": INTERVAL} | discovery}
    return found | {"policy": "least_load"}


def wait_for_pairs(cluster, count):
    wait_until(
        lambda: cluster.router.metric("tandem_router_usable_pairs") == count, lambda: get(cluster.url + "/statusz")[1]
    )


def wait_logged(cluster, words):
    wait_until(lambda: words in cluster.router.log.read_text(), lambda: f"{words}: {cluster.router.tail()}")


@contextlib.contextmanager
def load(cluster, num_clients=6):
    """Clients that ask all the time; at the end each must have got the one right answer, each time."""
    expected = plain(cluster.openai(), messages=LONG_QUESTION, max_tokens=30).content
    is_over = False

    def ask_until_over():
        answers = []
        with cluster.openai() as client:
            while not is_over or not answers:
                answers.append(plain(client, messages=LONG_QUESTION, max_tokens=30).content)
        return answers

    with ThreadPoolExecutor(num_clients) as pool:
        clients = [pool.submit(ask_until_over) for _ in range(num_clients)]
        try:
            yield
        finally:
            is_over = True
        answers = [answer for client in clients for answer in client.result()]  # raises what a client met
    assert set(answers) == {expected}


def test_pools_grow_and_shrink_under_load_and_no_request_fails(fresh_cluster, worker_file):
    with contextlib.ExitStack() as stack:
        cluster = fresh_cluster(num_spare=2, router=found_by({"file": str(worker_file.path)}))
        worker_file.list(cluster, prefills=[0], decodes=[0])
        stack.enter_context(cluster)
        with load(cluster):
            cluster.start_prefill(1)
            cluster.start_prefill(2)
            cluster.start_decode(1)
            worker_file.list(cluster, prefills=[0, 1, 2], decodes=[0, 1])
            wait_for_pairs(cluster, 6)
            for worker in (cluster.prefills[1], cluster.prefills[2], cluster.decodes[1]):
                wait_until(lambda: worker.metric("tandem_requests_received_total") > 0, lambda: f"{worker.name} idles")

            worker_file.list(cluster, prefills=[2], decodes=[1])
            wait_for_pairs(cluster, 1)
            removed = cluster.addresses("prefill", [0, 1]) + cluster.addresses("decode", [0])
            wait_until(
                lambda: not any(address in get(cluster.url + "/statusz")[1] for address in removed),
                lambda: get(cluster.url + "/statusz")[1],
            )
            for worker in (cluster.prefills[0], cluster.prefills[1], cluster.decodes[0]):
                wait_until(lambda: not worker.held(), lambda: f"{worker.name} holds {worker.held()}")
                assert worker.stop() == 0
            asked = cluster.decodes[1].metric("tandem_requests_received_total")
            wait_until(lambda: cluster.decodes[1].metric("tandem_requests_received_total") > asked + 6, lambda: "load")
        cluster.wait_at_rest(seconds=10)


def test_a_router_starts_before_there_is_any_worker_to_find(fresh_cluster, worker_file):
    with contextlib.ExitStack() as stack:
        cluster = fresh_cluster(
            router=found_by({"file": str(worker_file.path)}), start_order=("router", "prefill", "decode"), is_to_be_ready=False
        )
        stack.enter_context(cluster)
        assert cluster.router.readiness() == (503, "no usable pair: 0 of 0 prefill and 0 of 0 decode workers are up\n")
        assert cluster.router.log.read_text().count("cannot read the worker file") == 1
        worker_file.list(cluster, prefills=[0], decodes=[0])
        cluster.wait_ready()
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
        assert cluster.router.log.read_text().count("workers are found again") == 1


def test_faults_in_the_file_are_told_once_and_the_router_serves_with_what_it_has(fresh_cluster, worker_file):
    with contextlib.ExitStack() as stack:
        cluster = fresh_cluster(router=found_by({"file": str(worker_file.path)}))
        worker_file.list(cluster, prefills=[0], decodes=[0])
        stack.enter_context(cluster)
        (prefill,), (decode,) = cluster.addresses("prefill", [0]), cluster.addresses("decode", [0])
        faults = {
            "decode_workers is missing": f"prefill_workers: ['{prefill}']\n",
            "not YAML": "prefill_workers: [",
            "named twice": f"prefill_workers: ['{prefill}']\ndecode_workers: ['{prefill}']\n",
            "cannot be connected to": f"prefill_workers: ['0.0.0.0:1']\ndecode_workers: ['{decode}']\n",
        }
        for words, text in faults.items():
            worker_file.write(text)
            wait_logged(cluster, words)
            assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
        worker_file.path.unlink()
        wait_logged(cluster, "cannot read the worker file")
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
        lines = [line for line in cluster.router.log.read_text().splitlines() if "workers are not found" in line]
        assert len(lines) == len(faults) + 1, "each once"
        assert all("prefill_kept=1 decode_kept=1" in line for line in lines)


def test_an_address_of_another_role_is_told_once_and_not_used(fresh_cluster, worker_file):
    """As when an address has gone to a worker of the other pool since it was listed."""
    with contextlib.ExitStack() as stack:
        cluster = fresh_cluster(num_spare=1, router=found_by({"file": str(worker_file.path)}))
        worker_file.list(cluster, prefills=[0], decodes=[0])
        stack.enter_context(cluster)
        cluster.start_prefill(1)
        wait_until(lambda: cluster.prefills[1].readiness()[0] == 200, cluster.prefills[1].readiness)
        (prefill,), (decode,) = cluster.addresses("prefill", [0]), cluster.addresses("decode", [0])
        (other,) = cluster.addresses("prefill", [1])
        worker_file.write(f"prefill_workers: ['{prefill}']\ndecode_workers: ['{decode}', '{other}']\n")
        wait_logged(cluster, "is not a decode worker")
        assert cluster.router.metric("tandem_router_usable_pairs") == 1
        for _ in range(4):
            assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


def test_workers_are_found_by_a_name(fresh_cluster):
    cluster = fresh_cluster(router={})
    (prefill,), (decode,) = cluster.addresses("prefill", [0]), cluster.addresses("decode", [0])
    names = {"prefill_dns": prefill.replace("127.0.0.1", "localhost"), "decode_dns": decode.replace("127.0.0.1", "localhost")}
    cluster.options.router = found_by(names)
    with cluster:
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
    with contextlib.ExitStack() as stack:
        lost = fresh_cluster(
            router=found_by({"prefill_dns": "no-such-name.invalid:1", "decode_dns": "no-such-name.invalid:2"}), is_to_be_ready=False
        )
        stack.enter_context(lost)
        wait_logged(lost, "dns of decode workers")
        assert lost.router.readiness()[0] == 503
        assert lost.router.log.read_text().count('no-such-name.invalid\\" cannot be resolved') == 2, "once for each role"
