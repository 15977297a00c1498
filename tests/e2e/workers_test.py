"""/workers: the list, and a worker added, drained and removed by hand while requests run."""

import json
import urllib.error
import urllib.request

from tests.e2e.asking import plain
from tests.e2e.cluster import get, wait_until
from tests.e2e.discovery_test import load, wait_for_pairs


def call(cluster, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(cluster.url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def states(cluster):
    return {worker["id"]: worker["state"] for worker in call(cluster, "GET", "/workers")[1]["workers"]}


def test_the_list_is_open_to_all_and_changes_are_refused_unless_allowed(cluster):
    listed = call(cluster, "GET", "/workers")[1]
    assert listed["total"] == 2 and listed["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
    assert {w["worker_type"]: w["id"] for w in listed["workers"]} == {
        role: cluster.addresses(role, [0])[0] for role in ("prefill", "decode")
    }
    (worker,) = [w for w in listed["workers"] if w["worker_type"] == "decode"]
    status, one = call(cluster, "GET", f"/workers/{worker['id']}")
    assert status == 200 and one["id"] == worker["id"]
    assert call(cluster, "GET", "/workers/nobody:1")[0] == 404
    for method, path, body in (
        ("POST", "/workers", {"url": "127.0.0.1:1", "worker_type": "decode"}),
        ("DELETE", f"/workers/{worker['id']}", None),
        ("POST", f"/workers/{worker['id']}/drain", None),
    ):
        status, answer = call(cluster, method, path, body)
        assert status == 403 and "process.worker_changes" in answer["error"]["message"]
    assert states(cluster)[worker["id"]] == "up"
    assert call(cluster, "POST", f"/workers/{worker['id']}", {})[0] == 405
    assert call(cluster, "GET", f"/workers/{worker['id']}/drain")[0] == 405


def test_a_worker_is_added_drained_and_removed_under_load(fresh_cluster):
    with fresh_cluster(num_spare=1, router={"worker_changes": True}) as cluster:
        (first,), (second,) = cluster.addresses("decode", [0]), cluster.addresses("decode", [1])
        with load(cluster):
            cluster.start_decode(1)
            assert call(cluster, "POST", "/workers", {"url": f"grpc://{second}", "worker_type": "decode"})[0] == 202
            wait_for_pairs(cluster, 2)
            assert states(cluster)[second] == "up"

            status, answer = call(cluster, "DELETE", f"/workers/{first}")
            assert status == 400 and "is listed by configuration" in answer["error"]["message"]
            assert call(cluster, "POST", f"/workers/{first}/drain")[0] == 202
            wait_until(lambda: first not in states(cluster), lambda: get(cluster.url + "/statusz")[1])
            assert call(cluster, "POST", "/workers", {"url": first, "worker_type": "prefill"})[0] == 400
            assert call(cluster, "POST", "/workers", {"url": first, "worker_type": "decode"})[0] == 202
            wait_for_pairs(cluster, 2)

            assert call(cluster, "DELETE", f"/workers/{second}")[0] == 202
            wait_until(lambda: second not in states(cluster), lambda: get(cluster.url + "/statusz")[1])
            wait_for_pairs(cluster, 1)
        assert call(cluster, "DELETE", f"/workers/{second}")[0] == 404
        assert plain(cluster.openai(), max_tokens=2).finish_reason == "length"
        cluster.wait_at_rest(seconds=10)
