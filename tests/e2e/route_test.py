"""/debug/route through real processes: it says where a request would go, the request goes there, and asking takes
nothing."""

import json

from tests.e2e.asking import LONG_QUESTION, chat
from tests.e2e.cluster import get, wait_until

PAGE = 64


def route(cluster, body):
    status, _, text = cluster.post(body, "/debug/route")
    assert status == 200, text
    return json.loads(text)


def test_a_request_goes_where_its_route_was_and_the_question_takes_nothing(fresh_cluster):
    with fresh_cluster(num_prefill=2, router={"policy": "prefix"}) as cluster:
        body = chat(messages=LONG_QUESTION, max_tokens=2)
        cold = route(cluster, body)
        assert cold["pairs_total"] == len(cold["pairs"]) == 2 and cold["excluded"] == [], cold
        for pair in cold["pairs"]:
            assert pair["cost"] == sum(pair["parts"].values()) and pair["parts"]["uncached"] == cold["needs_tokens"]
        assert cold["pairs"][0]["cost"] <= cold["pairs"][1]["cost"]
        assert not any(worker.held() for worker in (*cluster.prefills.values(), cluster.decode))
        assert cluster.router.metric("tandem_prompt_tokens_total") == 0, "nothing was sent to anybody"

        def ask():
            """What the router noted of the pair that it picked."""
            status, _, text = cluster.post(body)
            assert status == 200, text
            cluster.wait_at_rest()
            events = json.loads(get(f"{cluster.url}/debug/requests/{json.loads(text)['id']}")[1])["events"]
            return next(event["detail"] for event in events if event["name"] == "pick")

        first = ask()
        cached = (cold["needs_tokens"] - 2) // PAGE * PAGE  # whole pages before the last token

        # Once the workers have told that they are at rest, and what they have cached.
        def is_warm():
            told = route(cluster, body)
            in_line = sum(pair["parts"]["waiting"] for pair in told["pairs"])
            return told["choice"]["cached_tokens"] == cached and in_line == 0

        wait_until(is_warm, lambda: json.dumps(route(cluster, body)))
        warm = route(cluster, body)
        assert first.startswith(f"prefill {warm['choice']['prefill']} ") and warm["choice"]["num_cheapest"] == 1
        assert [pair["cached_tokens"] for pair in warm["pairs"]] == [cached, 0]
        assert [pair["parts"]["uncached"] for pair in warm["pairs"]] == [
            warm["needs_tokens"] - cached,
            warm["needs_tokens"],
        ]
        second = ask()
        assert second.startswith(f"prefill {warm['choice']['prefill']} ") and f"({cached} cached, " in second

        place = int(warm["choice"]["prefill"] != cluster.addresses("prefill", [0])[0])
        cluster.prefills[place].kill()
        gone = warm["choice"]["prefill"]

        def is_excluded():
            return any(out["prefill"] == gone and out["why"].startswith("down") for out in route(cluster, body)["excluded"])

        wait_until(is_excluded, lambda: json.dumps(route(cluster, body)))
        left = route(cluster, body)
        assert left["choice"]["prefill"] != gone and left["choice"]["cached_tokens"] == 0
        assert left["pairs_total"] == 1
