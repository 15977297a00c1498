"""tools/bench/load.py against a real cluster: every request is answered, and its figures agree with the services' own."""

import json

from tests.e2e.cluster import wait_until
from tools.bench import load


def test_a_short_load_is_answered_and_its_figures_add_up(cluster, tmp_path):
    out = tmp_path / "report.json"
    before = cluster.router.metric("tandem_generation_tokens_total")
    metrics = [process.admin + "/metrics" for process in (cluster.prefill, cluster.decode)]
    status = load.main(
        ["--url", cluster.url, "--concurrency", "4", "--requests", "12", "--prompt_tokens", "40:90"]
        + ["--answer_tokens", "8:24", "--out", str(out)]
        + [argument for url in metrics for argument in ("--metrics", url)]
    )
    found = json.loads(out.read_text())
    assert status == 0 and found["errors"] == {}, found["errors"]
    assert found["requests"] == {"planned": 12, "started": 12, "answered": 12}
    # The two probes of one token each are the generator's own.
    expected = before + 2 + found["answer_tokens"]
    wait_until(
        lambda: cluster.router.metric("tandem_generation_tokens_total") == expected,
        lambda: f"{expected} tokens: {cluster.router.metric('tandem_generation_tokens_total')}",
    )
    assert 30 <= found["prompt_length"]["p50"] <= 100
    prefill, decode = (found["step_seconds"][url] for url in metrics)
    assert prefill["count"] >= 3, "chunks of four prompts at a time at most"
    assert decode["count"] >= max(7, found["answer_tokens"] // 4 - 12)
    assert decode["mean"] <= found["seconds"]
