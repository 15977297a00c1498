"""Where a request's time went: /debug/requests, through real processes."""

import json
import urllib.error
import urllib.request

import pytest

from tests.e2e.asking import LONG_QUESTION, chat
from tests.e2e.cluster import get, wait_until
from tests.e2e.held_stream import HeldStream

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def debug(cluster, path=""):
    status, body = get(f"{cluster.url}/debug/requests{path}")
    assert status == 200, body
    return json.loads(body)


def ask(cluster, headers=None, **fields):
    """The answer's id."""
    data = json.dumps(chat(**fields)).encode()
    request = urllib.request.Request(
        cluster.url + "/v1/chat/completions", data, {"Content-Type": "application/json"} | (headers or {})
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())["id"]


def ended(cluster, id):
    """Its timeline, once its workers have told their part."""
    wait_until(lambda: id in [one["id"] for one in debug(cluster)["recent"]], lambda: debug(cluster))
    return debug(cluster, "/" + id)


def test_a_request_tells_where_its_time_went(fresh_cluster):
    with fresh_cluster(chunked_prefill_size=128) as cluster:
        id = ask(cluster, {"traceparent": TRACE, "x-request-id": "of-the-client"}, messages=LONG_QUESTION, max_tokens=8)
        timeline = ended(cluster, id)
        assert timeline["status"] == 200 and timeline["finish"] == "length" and timeline["completion_tokens"] == 8
        assert timeline["traceparent"] == TRACE and timeline["prompt_tokens"] > 300
        assert debug(cluster, "/of-the-client") == timeline
        events = {}
        for event in timeline["events"]:
            events.setdefault((event["place"], event["name"]), []).append(event)
        assert set(events) >= {
            ("router", "queue"),
            ("router", "parse and tokenise"),
            ("router", "pick"),
            ("router", "first token"),
            ("router", "answer ends"),
            ("decode", "reserve pages"),
            ("prefill", "wait for its turn"),
            ("prefill", "chunk"),
            ("prefill", "sampled"),
            ("transfer", "transfer"),
        }
        assert "load" in events["router", "pick"][0]["detail"], "the reason of the choice"
        chunks = events["prefill", "chunk"]
        assert len(chunks) >= 2, "370 tokens in chunks of 128 complete pages more than once"
        assert all(a["at_ms"] + a["took_ms"] == pytest.approx(b["at_ms"], abs=0.002) for a, b in zip(chunks, chunks[1:]))
        # In the order in which it must have been, on one clock.
        order = [events["router", "queue"], events["router", "parse and tokenise"], events["router", "pick"]]
        order += [events["prefill", "wait for its turn"], chunks, events["prefill", "sampled"], events["router", "answer ends"]]
        begins = [one[0]["at_ms"] for one in order]
        assert begins == sorted(begins)
        assert timeline["took_ms"] >= max(event["at_ms"] for event in timeline["events"] if event["place"] == "router") - 0.002
        trace = debug(cluster, f"/{id}?format=perfetto")
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert len(spans) >= 1 + len(chunks) and all(span["dur"] > 0 for span in spans)


def test_a_running_request_is_listed_and_a_failover_is_told(fresh_cluster):
    with fresh_cluster(num_decode=2, router={"timeline_gap": "0s"}) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster, max_tokens=1400).begin()
        (running,) = debug(cluster)["running"]
        assert running["status"] is None
        (number,) = wait_until(
            lambda: [n for n, worker in cluster.decodes.items() if worker.held()], lambda: "a request at a decode worker"
        )
        cluster.decodes[number].kill()
        stream.rest()
        timeline = ended(cluster, running["id"])
        names = [event["name"] for event in timeline["events"]]
        assert "attempt failed" in names and "go on elsewhere" in names and "gap" in names
        assert names.index("attempt failed") < names.index("go on elsewhere")
        lists = debug(cluster)
        assert lists["running"] == [] and lists["recent"][0]["id"] == running["id"]
        assert lists["slow"][0]["id"] == running["id"] and lists["slow"][0]["longest_wait_ms"] > 0


def test_refusals_and_what_is_not_known(fresh_cluster, tmp_path):
    (tmp_path / "keys").write_text("the-clients-key\n")
    (tmp_path / "admin").write_text("the-admin-key\n")
    with fresh_cluster() as cluster:
        assert get(cluster.url + "/debug/requests/nobody")[0] == 404
        id = ask(cluster, max_tokens=2)
        assert get(f"{cluster.url}/debug/requests/{id}?format=svg")[0] == 400
        status, _, _ = cluster.post(chat(max_tokens=-1))
        assert status == 400
        wait_until(lambda: len(debug(cluster)["recent"]) == 2, lambda: debug(cluster))
        (refused,) = [one for one in debug(cluster)["recent"] if one["id"] != id]
        assert refused["status"] == 400 and "max_tokens" in refused["error"]
    auth = {"api_keys_file": str(tmp_path / "keys"), "admin_keys_file": str(tmp_path / "admin")}
    with fresh_cluster(router={"auth": auth, "timelines": 0}, start_order=("router",), is_to_be_ready=False) as cluster:
        for key, expected in (("the-clients-key", 401), ("the-admin-key", 200)):
            request = urllib.request.Request(cluster.url + "/debug/requests", headers={"Authorization": f"Bearer {key}"})
            try:
                with urllib.request.urlopen(request) as answer:
                    status = answer.status
                    assert json.loads(answer.read()) == {"running": [], "running_total": 0, "recent": [], "slow": []}
            except urllib.error.HTTPError as error:
                status = error.code
            assert status == expected
