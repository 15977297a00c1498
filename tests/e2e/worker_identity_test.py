"""Workers that are mistaken for each other: two under one name, one under two addresses. One line each, and all goes on."""

from tests.e2e.cluster import HOST, get, wait_until
from tests.e2e.discovery_test import load, wait_for_pairs, wait_logged
from tests.e2e.proxy import Proxy
from tests.e2e.workers_test import call


def lines(process, words):
    return [line for line in process.log.read_text().splitlines() if words in line]


def attachments(worker):
    return len(lines(worker, "router attached"))


def test_a_process_under_two_addresses_is_used_once_and_its_stream_stays(fresh_cluster):
    with fresh_cluster(router={"worker_changes": True, "policy": "least_load"}) as cluster:
        proxy = Proxy(HOST, int(cluster.addresses("decode", [0])[0].rpartition(":")[2]))
        try:
            alias = f"{HOST}:{proxy.port}"
            with load(cluster):
                assert call(cluster, "POST", "/workers", {"url": alias, "worker_type": "decode"})[0] == 202
                wait_logged(cluster, f"{alias} is the process that is used as {cluster.addresses('decode', [0])[0]} already")
                # The first address, the other one once, the first again.
                wait_until(lambda: attachments(cluster.decode) == 3, lambda: attachments(cluster.decode))
                wait_for_pairs(cluster, 1)
                asked = cluster.decode.metric("tandem_requests_received_total")
                wait_until(lambda: cluster.decode.metric("tandem_requests_received_total") > asked + 30, lambda: "load")
            assert attachments(cluster.decode) == 3, "it is not greeted again while the process has its place"
            assert len(lines(cluster.router, "worker cannot be used")) == 1
            assert "is the process that is used as" in get(cluster.url + "/statusz")[1]
            # Gone from the first address, it is used under the other one.
            assert call(cluster, "POST", f"/workers/{cluster.addresses('decode', [0])[0]}/drain")[0] == 202
            wait_until(lambda: attachments(cluster.decode) == 4, lambda: attachments(cluster.decode))
            wait_for_pairs(cluster, 1)
            with load(cluster, num_clients=2):
                pass
            cluster.wait_at_rest()
        finally:
            proxy.close()


def test_two_decode_workers_with_one_name_are_told_of_and_do_not_throw_each_other_out(fresh_cluster):
    with fresh_cluster(num_spare=1, router={"worker_changes": True, "policy": "least_load"}) as cluster:
        (first,), (second,) = cluster.addresses("decode", [0]), cluster.addresses("decode", [1])
        with load(cluster):
            cluster.start_decode(1, instance="decode-0")
            assert call(cluster, "POST", "/workers", {"url": second, "worker_type": "decode"})[0] == 202
            wait_logged(cluster, "two workers have one instance name")
            wait_logged(cluster, "another decode worker has greeted later as instance")
            wait_for_pairs(cluster, 1)
            later = cluster.decodes[1]
            asked = later.metric("tandem_requests_received_total")
            wait_until(lambda: later.metric("tandem_requests_received_total") > asked + 20, lambda: "the later one serves")
        (line,) = lines(cluster.router, "two workers have one instance name")
        assert "inst=decode-0" in line and first in line and second in line
        assert len(lines(cluster.prefill, "decode worker linked")) == 2, "each once"
        cluster.wait_at_rest()


def test_two_prefill_workers_with_one_name_are_told_of_and_both_serve(fresh_cluster):
    with fresh_cluster(num_spare=1, router={"worker_changes": True, "policy": "least_load"}) as cluster:
        with load(cluster):
            cluster.start_prefill(1, instance="prefill-0")
            (second,) = cluster.addresses("prefill", [1])
            assert call(cluster, "POST", "/workers", {"url": second, "worker_type": "prefill"})[0] == 202
            wait_for_pairs(cluster, 2)
            for worker in cluster.prefills.values():
                asked = worker.metric("tandem_requests_received_total")
                wait_until(lambda: worker.metric("tandem_requests_received_total") > asked, lambda: f"{worker.name} idles")
        assert len(lines(cluster.router, "two workers have one instance name")) == 1
