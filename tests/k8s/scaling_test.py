"""The autoscaling examples ask for metrics that the services have, and scale what their variant deploys."""

import re
import shutil
import subprocess

import pytest
import yaml

from tests.e2e.cluster import ROOT
from tests.k8s.manifests import AUTOSCALING, build, of_kind, pools

each = pytest.mark.parametrize("name", sorted(AUTOSCALING))


def documented(role):
    """name -> type of the metrics of a service; tests/e2e holds the page to what is exposed."""
    page = (ROOT / "docs" / "operations.md").read_text()
    title = {"router": "Router", "prefill": "Prefill worker", "decode": "Decode worker"}[role]
    section = page.split(f"### {title}\n")[1].split("###")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (\w+)", section, re.MULTILINE))


def queries(o):
    return [t["metadata"]["query"] for t in o["spec"].get("triggers", [])]


@each
def test_every_metric_exists_in_the_role_that_is_asked_for_it(name):
    for o in build(name):
        scaled = o["metadata"]["labels"]["app.kubernetes.io/component"]
        asked = [(scaled, m["pods"]["metric"]["name"]) for m in o["spec"].get("metrics", [])]
        for query in queries(o):
            selected = re.findall(r'(tandem_\w+)\{role="(\w+)"', query)
            assert len(selected) == len(re.findall("tandem_", query)), f"a metric without its role: {query}"
            asked += [(role, metric) for metric, role in selected]
        assert asked
        for role, metric in asked:
            types = documented(role)
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert types.get(metric) in ("gauge", "counter") or types.get(base) == "histogram", f"{role}: {metric}"


def test_a_prefill_pool_is_scaled_by_queued_tokens_and_decode_by_room_and_pace():
    text = {o["metadata"]["name"]: yaml.safe_dump(o) for o in build("autoscaling/keda")}
    assert "tandem_num_queue_tokens" in text["tandem-prefill"]
    assert "tandem_kv_pages_used" in text["tandem-decode"] and "inter_token_latency" in text["tandem-decode"]
    for pool in ("prefill", "decode"):
        assert f'tandem_router_pool_workers_suggested{{role="router",pool="{pool}"}}' in text[f"tandem-{pool}"]


@each
def test_what_is_scaled_is_deployed_and_scales_down_slower_than_a_drain(name):
    deployed = {(o["apiVersion"], o["kind"], o["metadata"]["name"]): o for o in build(AUTOSCALING[name])}
    drain = max(pool.spec["terminationGracePeriodSeconds"] for pool in pools(AUTOSCALING[name]).values())
    for o in build(name):
        target = o["spec"]["scaleTargetRef"]
        found = deployed[target["apiVersion"], target["kind"], target["name"]]
        low = o["spec"].get("minReplicas", o["spec"].get("minReplicaCount"))
        assert low == found["spec"]["replicas"] >= 2
        behavior = o["spec"].get("behavior") or o["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= drain
        assert all(p["value"] == 1 and p["periodSeconds"] >= drain for p in behavior["scaleDown"]["policies"])


def test_prometheus_reads_every_query(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    rules = [
        {"record": f"test:query{number}", "expr": query}
        for number, query in enumerate(q for o in build("autoscaling/keda") for q in queries(o))
    ]
    assert len(rules) >= 3
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "test", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_ratio_of_the_pools_is_kept_by_a_policy_that_names_both():
    (policy,) = of_kind("rbg/v1alpha2", "CoordinatedPolicy")
    rules = policy["spec"]["policies"]
    (group,) = of_kind("rbg/v1alpha1", "RoleBasedGroup")
    assert group["spec"]["coordination"] == rules
    (rule,) = rules
    assert {role["name"] for role in group["spec"]["roles"]} == set(rule["roles"]) == {"prefill", "decode"}
    for version in ("v1alpha1", "v1alpha2"):
        (group,) = of_kind(f"rbg/{version}", "RoleBasedGroup")
        adapters = of_kind(f"rbg/{version}", "RoleBasedGroupScalingAdapter")
        assert {a["spec"]["scaleTargetRef"]["role"] for a in adapters} == {role["name"] for role in group["spec"]["roles"]}
        assert {a["spec"]["scaleTargetRef"]["name"] for a in adapters} == {group["metadata"]["name"]}
