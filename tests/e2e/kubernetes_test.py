"""Workers found by the Kubernetes API, from a server that is away, slow, forgetful or wrong; requests go on meanwhile."""

import contextlib

import pytest

from tests.e2e.asking import plain
from tests.e2e.cluster import HOST, Cluster, Options, get, wait_until
from tests.e2e.discovery_test import load, wait_for_pairs, wait_logged
from tests.e2e.kube_api import Faults, KubeApi

LABELS = {role: {"kubernetes.io/service-name": f"tandem-{role}-pods"} for role in ("prefill", "decode")}
SELECTORS = {role: f"kubernetes.io/service-name=tandem-{role}-pods" for role in LABELS}


@pytest.fixture
def kube(tmp_path, monkeypatch):
    with KubeApi(tmp_path / "service-account") as api:
        for name, value in api.environment.items():
            monkeypatch.setenv(name, value)
        yield api


def found_by_kube(api, **settings):
    kubernetes = {f"{role}_selector": selector for role, selector in SELECTORS.items()}
    kubernetes |= {"service_account_folder": str(api.folder), "list_interval": "1s"} | settings
    found = {"prefill_workers": [], "decode_workers": [], "discovery": {"kubernetes": kubernetes}}
    return found | {"policy": "least_load"}  # so that all are used


def port_of(cluster, role, number):
    (address,) = cluster.addresses(role, [number])
    return int(address.rpartition(":")[2])


def put(api, cluster, role, number, **conditions):
    """The pod of that worker, in a slice of its own: every process here has another port."""
    api.put(f"tandem-{role}-{number}", LABELS[role], [HOST], port_of(cluster, role, number), **conditions)


def put_all(api, cluster, prefills=(0,), decodes=(0,)):
    for role, numbers in (("prefill", prefills), ("decode", decodes)):
        for number in numbers:
            put(api, cluster, role, number)


def count(cluster, words):
    return cluster.router.log.read_text().count(words)


def ask(cluster):
    assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"


@contextlib.contextmanager
def serving(fresh_cluster, api, discovery=None, **options):
    """A cluster whose first workers the API server lists."""
    cluster = fresh_cluster(router=found_by_kube(api, **(discovery or {})), **options)
    put_all(api, cluster)
    with cluster:
        yield cluster


def test_pools_follow_the_watch_under_load_and_every_answer_is_right(fresh_cluster, kube):
    # Lists come only once an hour: what is seen here, the watch has said.
    with serving(fresh_cluster, kube, discovery={"list_interval": "1h"}, num_spare=2) as cluster:
        wait_until(lambda: kube.num_watches() == 2, kube.num_watches)
        with load(cluster):
            for number in (1, 2):
                cluster.start_prefill(number)
                put(kube, cluster, "prefill", number, ready=False)
            cluster.start_decode(1)
            put(kube, cluster, "decode", 1, ready=False)
            put(kube, cluster, "prefill", 1)
            put(kube, cluster, "decode", 1)
            wait_for_pairs(cluster, 4)
            assert cluster.addresses("prefill", [2])[0] not in get(cluster.url + "/statusz")[1], "it is not ready"
            put(kube, cluster, "prefill", 2)
            wait_for_pairs(cluster, 6)
            for worker in (cluster.prefills[1], cluster.prefills[2], cluster.decodes[1]):
                wait_until(lambda: worker.metric("tandem_requests_received_total") > 0, lambda: f"{worker.name} idles")
            put(kube, cluster, "prefill", 0, terminating=True)
            put(kube, cluster, "decode", 0, terminating=True)
            kube.delete("tandem-prefill-1")
            wait_for_pairs(cluster, 1)
            left = cluster.addresses("prefill", [0, 1]) + cluster.addresses("decode", [0])
            wait_until(
                lambda: not any(address in get(cluster.url + "/statusz")[1] for address in left),
                lambda: get(cluster.url + "/statusz")[1],
            )
            for worker in (cluster.prefills[0], cluster.prefills[1], cluster.decodes[0]):
                assert worker.stop() == 0
        assert kube.asked("list") == 2, "one for each pool"
        cluster.wait_at_rest(seconds=10)


def test_whatever_the_watch_loses_a_list_brings_back(fresh_cluster, kube):
    """Events dropped, doubled, late, out of order, cut and between garbage; versions forgotten; a token replaced."""
    kube.faults = Faults(drop=0.3, duplicate=0.2, reorder=0.2, delay=0.2, cut=0.2, garbage=0.1)
    with serving(fresh_cluster, kube, num_spare=1) as cluster:
        cluster.start_prefill(1)
        cluster.start_decode(1)
        for turn in range(6):
            put_all(kube, cluster, prefills=[0, 1], decodes=[0, 1])
            if turn % 2 == 0:
                kube.is_compacted_said_by_status = turn % 4 == 0
                kube.compact()
            if turn == 3:
                kube.new_token()  # no list succeeds with the old one from here on
            wait_for_pairs(cluster, 4)
            ask(cluster)
            gone = turn % 2
            kube.delete(f"tandem-prefill-{gone}")
            put(kube, cluster, "decode", gone, ready=False)
            wait_for_pairs(cluster, 1)
            ask(cluster)


def test_a_watch_that_is_cut_goes_on_from_what_it_has_heard(fresh_cluster, kube):
    with serving(fresh_cluster, kube, discovery={"list_interval": "1h"}, num_spare=1) as cluster:
        cluster.start_prefill(1)
        wait_until(lambda: kube.num_watches() == 2, kube.num_watches)
        listed = kube.watched_from()
        put(kube, cluster, "prefill", 1)
        wait_for_pairs(cluster, 2)
        for turn in range(3):
            # One that is cut before the server has accepted it is followed by a list.
            wait_until(lambda: kube.num_told() == 2 * (turn + 1), kube.num_told)
            kube.cut_watches()
        wait_until(lambda: kube.num_told() == 8, kube.num_told)
        kube.delete("tandem-prefill-1")
        wait_for_pairs(cluster, 1)
        later = kube.watched_from()[len(listed) :]
        assert len(later) == 6 and all(version > max(listed) for version in later[-2:]), "an event or a bookmark told it"
        assert kube.asked("list") == 2
        assert count(cluster, "workers are not found") == count(cluster, "not watched") == 0, "that is everyday"
        # A server that has forgotten that version is asked for a list, once for each pool.
        put(kube, cluster, "prefill", 1)
        kube.compact()
        wait_until(lambda: kube.asked("list") == 4, lambda: kube.asked("list"))
        wait_for_pairs(cluster, 2)


def test_while_the_api_server_is_away_the_router_serves_what_it_has_and_says_so_once(fresh_cluster, kube):
    with serving(fresh_cluster, kube, num_spare=1) as cluster:
        cluster.start_decode(1)
        kube.stop()
        wait_until(lambda: count(cluster, "workers are not found") == 2, cluster.router.tail)
        put(kube, cluster, "decode", 1)  # nobody hears of it
        assert cluster.router.metric("tandem_router_discovery_sources_failing") == 2
        for _ in range(10):
            ask(cluster)
        kube.start()
        wait_for_pairs(cluster, 2)
        wait_until(lambda: count(cluster, "workers are found again") == 2, cluster.router.tail)
        assert cluster.router.metric("tandem_router_discovery_sources_failing") == 0
        ask(cluster)
        lines = [line for line in cluster.router.log.read_text().splitlines() if "workers are not found" in line]
        assert len(lines) == 2, "once for each pool"
        assert all("cannot connect" in line and f"{HOST}:{kube.port}" in line for line in lines), lines


REFUSALS = [(status, None, f"HTTP {status}: list is refused by the test") for status in (401, 403, 404, 429, 500)]
NONSENSE = [
    (200, "<html>", "not JSON"),
    (200, "{}", "not an EndpointSliceList"),
    (200, '{"kind":"EndpointSliceList","metadata":{"resourceVersion":"7","continue":"x"},"items":[]}', "is a part of one"),
    (200, "x" * (9 << 20), "the list is larger than 8388608 bytes"),
]


def test_refusals_and_nonsense_are_told_once_and_what_is_known_stays(fresh_cluster, kube):
    with serving(fresh_cluster, kube) as cluster:
        for number, (status, body, words) in enumerate(REFUSALS + NONSENSE, start=1):
            kube.refuse("list", status, retry_after=1 if status == 429 else None, body=body)
            wait_until(lambda: count(cluster, words) == 2, lambda: f"{words}: {cluster.router.tail()}")
            asked = kube.asked("list")
            wait_until(lambda: kube.asked("list") >= asked + 2, lambda: kube.asked("list"))
            ask(cluster)
            assert count(cluster, words) == 2, "once for each pool, however often it was asked"
            kube.allow()
            wait_until(lambda: count(cluster, "workers are found again") == 2 * number, cluster.router.tail)
        # Lists without watches: they are what counts.
        kube.refuse("watch", 403)
        kube.cut_watches()
        wait_until(lambda: count(cluster, "workers are listed, not watched") == 2, cluster.router.tail)
        put(kube, cluster, "decode", 0, ready=False)
        wait_logged(cluster, "no endpoint is ready of those with the labels " + SELECTORS["decode"])
        ask(cluster)
        kube.allow()
        put(kube, cluster, "decode", 0)
        wait_until(lambda: count(cluster, "workers are watched again") == 2, cluster.router.tail)
        assert count(cluster, "workers are listed, not watched") == 2
        kube.refuse("watch", 200, body="x" * (3 << 20))
        kube.cut_watches()
        wait_until(lambda: count(cluster, "an event is larger than 2097152 bytes") == 2, cluster.router.tail)
        ask(cluster)
        assert kube.token not in cluster.router.log.read_text()


def test_a_server_that_is_not_the_clusters_is_not_believed(fresh_cluster, kube):
    with serving(fresh_cluster, kube) as cluster:
        kube.new_certificate(is_trusted=False)
        kube.cut_watches()
        wait_until(lambda: count(cluster, "certificate refused: self") == 2, cluster.router.tail)
        ask(cluster)
        kube.new_certificate(host="DNS:elsewhere.example")
        wait_until(lambda: count(cluster, "certificate refused: ") >= 4, cluster.router.tail)
        ask(cluster)
        kube.new_certificate()
        wait_until(lambda: count(cluster, "workers are found again") == 2, cluster.router.tail)


def test_a_selector_that_matches_nothing_and_a_missing_port_are_one_clear_line_each(fresh_cluster, kube):
    selector = "app=nobody"
    router = found_by_kube(kube, decode_selector=selector, port_name="rpcs")
    cluster = fresh_cluster(router=router, is_to_be_ready=False)
    put_all(kube, cluster)
    with cluster:
        wait_logged(cluster, f"no EndpointSlice has the labels {selector}")
        wait_logged(cluster, 'EndpointSlice tandem-prefill-0 has no TCP port named \\"rpcs\\"')
        asked = kube.asked("list")
        wait_until(lambda: kube.asked("list") >= asked + 4, lambda: kube.asked("list"))
        assert count(cluster, "workers are not found") == 2
        assert cluster.router.readiness() == (503, "no usable pair: 0 of 0 prefill and 0 of 0 decode workers are up\n")
        kube.put("other", {"app": "nobody"}, [HOST], port_of(cluster, "decode", 0), port_name="rpcs")
        kube.put("tandem-prefill-0", LABELS["prefill"], [HOST], port_of(cluster, "prefill", 0), port_name="rpcs")
        cluster.wait_ready()
        ask(cluster)


def test_outside_a_pod_the_router_does_not_start_and_says_why(micro, tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    router = {"discovery": {"kubernetes": {"prefill_selector": "a=b"}}}
    cluster = Cluster(tmp_path / "cluster", micro, Options(router=router, start_order=("router",)))
    with pytest.raises(AssertionError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"), cluster:
        pass
