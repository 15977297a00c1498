"""Rolling updates as Kubernetes drives them, with real processes: new pods become ready, old ones terminate, or never do.

The nodes and the controllers are played here (Node): a pod is listed as ready while its /readyz says so, as terminating
from its deletion on, which is a SIGTERM, and not at all once it has ended. The routers hear of it by their watch.
"""

import contextlib
import os
import signal
import threading

import pytest

from tests.e2e.asking import LONG_QUESTION, plain
from tests.e2e.cluster import get, make_checkpoint, wait_until
from tests.e2e.discovery_test import load, wait_for_pairs, wait_logged
from tests.e2e.kubernetes_test import found_by_kube, kube, put  # noqa: F401  (kube is a fixture)

PROBE_SECONDS = 1


class Node:
    """Runs pods, probes them, and keeps the EndpointSlices as they are."""

    def __init__(self, api, cluster):
        self._api = api
        self._cluster = cluster
        self._lock = threading.Lock()
        self._pods = {}  # (role, number) -> is terminating
        self._said = {}  # the same -> what the slice says
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep_slices)

    def __enter__(self):
        for role, workers in (("prefill", self._cluster.prefills), ("decode", self._cluster.decodes)):
            for number in workers:
                self._pods[role, number] = False
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def worker(self, role, number):
        return (self._cluster.prefills if role == "prefill" else self._cluster.decodes)[number]

    def start(self, role, number, **process):
        (self._cluster.start_prefill if role == "prefill" else self._cluster.start_decode)(number, **process)
        with self._lock:
            self._pods[role, number] = False

    def delete(self, role, number):
        """Waits for its end; the exit code."""
        with self._lock:
            self._pods[role, number] = True
        self.worker(role, number).signal(signal.SIGTERM)
        return self.worker(role, number).wait()

    def wait_listed(self, role, number):
        wait_until(lambda: self._said.get((role, number)) == (True, False), lambda: f"{role} {number}: {self._said}")

    def _keep_slices(self):
        while not self._is_over.wait(0.02):
            with self._lock:
                pods = dict(self._pods)
            for (role, number), is_terminating in pods.items():
                worker = self.worker(role, number)
                if not worker.is_running():
                    if self._said.pop((role, number), None) is not None:
                        self._api.delete(f"tandem-{role}-{number}")
                    if is_terminating:
                        with self._lock:
                            self._pods.pop((role, number))
                    continue
                state = get(worker.admin + "/readyz", PROBE_SECONDS)[0] == 200, is_terminating
                if self._said.get((role, number)) != state:
                    self._said[role, number] = state
                    put(self._api, self._cluster, role, number, ready=state[0], terminating=state[1])


@contextlib.contextmanager
def deployed(fresh_cluster, api, num_spare=2, **options):
    """Two pods of each role, found by the watch alone: the next list is an hour away."""
    router = found_by_kube(api, list_interval="1h")
    cluster = fresh_cluster(num_prefill=2, num_decode=2, num_spare=num_spare, router=router, is_to_be_ready=False, **options)
    with cluster, Node(api, cluster) as node:
        wait_for_pairs(cluster, 4)
        yield cluster, node


def test_a_rolling_update_of_pods_that_keep_their_names_loses_no_request(fresh_cluster, kube):  # noqa: F811
    """As StatefulSets do it: the old one ends, then its successor starts under its name and another address."""
    with deployed(fresh_cluster, kube) as (cluster, node), load(cluster):
        for number in range(2):
            for role in ("decode", "prefill"):
                assert node.delete(role, number) == 0, node.worker(role, number).tail()
                wait_for_pairs(cluster, 2)
                node.start(role, number + 2, instance=f"{role}-{number}")
                wait_for_pairs(cluster, 4)
        for worker in (cluster.prefills[2], cluster.prefills[3], cluster.decodes[2], cluster.decodes[3]):
            asked = worker.metric("tandem_requests_received_total")
            wait_until(lambda: worker.metric("tandem_requests_received_total") > asked, lambda: f"{worker.name} idles")
        assert "two workers have one instance name" not in cluster.router.log.read_text(), "never both at once"


def test_a_rolling_update_with_a_surge_loses_no_request(fresh_cluster, kube):  # noqa: F811
    """As LWS, RBG and Deployments may do it: the new one becomes ready first, then an old one goes."""
    with deployed(fresh_cluster, kube) as (cluster, node), load(cluster):
        for number in range(2):
            for role in ("decode", "prefill"):
                node.start(role, number + 2)
                wait_for_pairs(cluster, 6)
                assert node.delete(role, number) == 0, node.worker(role, number).tail()
                wait_for_pairs(cluster, 4)
        old = cluster.addresses("prefill", [0, 1]) + cluster.addresses("decode", [0, 1])
        wait_until(lambda: not any(a in get(cluster.url + "/statusz")[1] for a in old), lambda: get(cluster.url + "/statusz")[1])


def crash(node, role, number, tmp_path):
    node.start(role, number, kv_cache_tokens=-1)
    worker = node.worker(role, number)
    worker.exit_code = 2
    assert worker.wait() == 2, "starting it again cannot help"


def hang(node, role, number, tmp_path):
    """The volume with its checkpoint does not answer: it never answers a probe."""
    os.mkfifo(tmp_path / "config.json")
    node.start(role, number, model_path=str(tmp_path))


@pytest.mark.parametrize("fault", [crash, hang])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_bad_rollout_leaves_the_old_ones_serving_and_the_corrected_one_gets_on(
    fresh_cluster, kube, role, fault, tmp_path  # noqa: F811
):
    """maxUnavailable 1: one of two is gone for the sake of a successor that never becomes ready."""
    with deployed(fresh_cluster, kube, num_spare=3) as (cluster, node):
        with load(cluster):
            assert node.delete(role, 0) == 0
            fault(node, role, 2, tmp_path)
            wait_for_pairs(cluster, 2)
            survivor = node.worker(role, 1)
            asked = survivor.metric("tandem_requests_received_total")
            wait_until(lambda: survivor.metric("tandem_requests_received_total") > asked + 6, lambda: "the survivor serves")
            assert cluster.router.readiness()[0] == 200
            assert cluster.addresses(role, [2])[0] not in get(cluster.url + "/statusz")[1], "it was never ready"
            if node.worker(role, 2).is_running():
                assert node.delete(role, 2) == 0
            node.start(role, 3)
            node.wait_listed(role, 3)
            wait_for_pairs(cluster, 4)
            assert node.delete(role, 1) == 0
            node.start(role, 4)
            wait_for_pairs(cluster, 4)


def test_a_revision_that_does_not_fit_the_other_pool_serves_by_the_pairs_that_do(fresh_cluster, kube):  # noqa: F811
    """Half-way through an update of a setting that both pools must share: each pair says what differs, none is guessed."""
    with deployed(fresh_cluster, kube) as (cluster, node):
        with load(cluster):
            assert node.delete("decode", 0) == 0
            node.start("decode", 2, kv_cache_dtype="bfloat16")
            node.wait_listed("decode", 2)
            wait_logged(cluster, "kv_cache_dtype")
            wait_for_pairs(cluster, 2)
        assert node.delete("prefill", 0) == 0
        wait_for_pairs(cluster, 1)
        node.start("prefill", 2, kv_cache_dtype="bfloat16")
        wait_for_pairs(cluster, 2)
        # Each revision has a pair that serves; their answers may differ.
        for number in (1, 2):
            asked = cluster.decodes[number].metric("tandem_requests_received_total")
            with cluster.openai() as client:
                wait_until(
                    lambda: plain(client, messages=LONG_QUESTION, max_tokens=4).finish_reason == "length"
                    and cluster.decodes[number].metric("tandem_requests_received_total") > asked,
                    lambda: f"decode {number} idles",
                )


def test_a_worker_of_another_model_is_told_of_once_and_not_used(fresh_cluster, kube, tmp_path):  # noqa: F811
    other = make_checkpoint(tmp_path / "other", "v32-micro", seed=2)
    with deployed(fresh_cluster, kube) as (cluster, node):
        node.start("decode", 2, model_path=str(other))
        node.wait_listed("decode", 2)
        wait_logged(cluster, "model_hash")
        with load(cluster, num_clients=2):
            wait_for_pairs(cluster, 4)
        assert cluster.decodes[2].metric("tandem_requests_received_total") == 0
        (address,) = cluster.addresses("decode", [2])
        lines = [line for line in cluster.router.log.read_text().splitlines() if "model_hash" in line]
        assert len(lines) == 2 and all(f"decode={address}" in line for line in lines), "one for each pair"
