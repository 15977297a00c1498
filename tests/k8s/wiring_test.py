"""What must agree across objects does: labels, ports, names, and who may talk to whom."""

import pytest

from tests.k8s.manifests import DEPLOYABLE, ROLES, config, matches, named, of_kind, pools

pytestmark = pytest.mark.parametrize("name", DEPLOYABLE)

# (from, to, port's name there): every connection that a cluster makes, and no other. None: somebody without our labels.
CONNECTIONS = {
    (None, "router", "http"),
    ("router", "router", "http"),
    ("prefill", "router", "http"),
    ("decode", "router", "http"),
    ("router", "prefill", "rpc"),
    ("router", "decode", "rpc"),
    ("decode", "prefill", "bootstrap"),
    ("decode", "prefill", "lane"),
    ("monitoring", "prefill", "admin"),
    ("monitoring", "decode", "admin"),
    ("monitoring", "router", "http"),
}
# The router's port is open to all; pods of ours have no business there, and cannot begin.
CLOSED_AT_THE_SENDER = {("router", "router", "http"), ("prefill", "router", "http"), ("decode", "router", "http")}


def test_every_selector_selects_pods_that_exist(name):
    by_role = pools(name)
    for pool in by_role.values():
        if pool.owner["kind"] in ("Deployment", "StatefulSet"):
            assert matches(pool.owner["spec"]["selector"], pool.labels)
        for spread in pool.spec["topologySpreadConstraints"]:
            assert [r for r in ROLES if matches(spread["labelSelector"], by_role[r].labels)] == [pool.role]
    for service in of_kind(name, "Service"):
        selected = [r for r in ROLES if matches({"matchLabels": service["spec"]["selector"]}, by_role[r].labels)]
        assert selected == [service["metadata"]["labels"]["app.kubernetes.io/component"]]
    budgets = of_kind(name, "PodDisruptionBudget")
    selected = [r for o in budgets for r in ROLES if matches(o["spec"]["selector"], by_role[r].labels)]
    assert sorted(selected) == sorted(ROLES), "one budget for each pool"
    for policy in of_kind(name, "NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], pool.labels) for pool in by_role.values())


def test_services_lead_to_the_ports_that_the_configurations_open(name):
    by_role = pools(name)
    opened = {
        role: {
            "http": config(name, by_role[role])["process"].get("port"),
            "rpc": config(name, by_role[role])["process"].get("rpc_port"),
            "bootstrap": config(name, by_role[role])["process"].get("bootstrap_port"),
            "lane": config(name, by_role[role])["process"].get("lane_port"),
            "admin": config(name, by_role[role])["process"].get("admin_port"),
        }
        for role in ROLES
    }
    for role, pool in by_role.items():
        declared = {p["name"]: p["containerPort"] for p in pool.container["ports"]}
        assert declared == {port: number for port, number in opened[role].items() if number is not None}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert pool.container[probe]["httpGet"]["port"] in declared
    for service in of_kind(name, "Service"):
        pool = by_role[service["metadata"]["labels"]["app.kubernetes.io/component"]]
        for port in service["spec"]["ports"]:
            number = pool.port(port["targetPort"])
            # A headless name gives pods' addresses: its ports are not translated.
            assert service["spec"].get("clusterIP") != "None" or port["port"] == number


def test_the_router_watches_each_pools_endpoint_slices_by_the_name_of_its_service(name):
    by_role = pools(name)
    found = config(name, by_role["router"])["process"]["discovery"]["kubernetes"]
    for role in ("prefill", "decode"):
        label, service_name = found[f"{role}_selector"].split("=")
        assert label == "kubernetes.io/service-name", "the label that Kubernetes gives a Service's slices"
        service = named(name, "Service", service_name)
        assert service["spec"]["clusterIP"] == "None" and matches({"matchLabels": service["spec"]["selector"]}, by_role[role].labels)
        assert not service["spec"].get("publishNotReadyAddresses"), "a pod that drains is not to be called ready"
        (port,) = [p for p in service["spec"]["ports"] if p["name"] == found["port_name"]]
        assert by_role[role].port("rpc") == by_role[role].port(port["targetPort"])
    (namespace,) = of_kind(name, "Namespace")
    assert found.get("namespace", namespace["metadata"]["name"]) == namespace["metadata"]["name"]


def test_rights_are_what_discovery_needs_and_nobody_else_has_any(name):
    (role,) = of_kind(name, "Role")
    assert role["rules"] == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    (binding,) = of_kind(name, "RoleBinding")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
    account = pools(name)["router"].spec["serviceAccountName"]
    namespace = role["metadata"]["namespace"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    assert binding["metadata"]["namespace"] == named(name, "ServiceAccount", account)["metadata"]["namespace"] == namespace
    assert {pools(name)[r].spec["serviceAccountName"] for r in ("prefill", "decode")}.isdisjoint({account})
    assert not of_kind(name, "ClusterRole") + of_kind(name, "ClusterRoleBinding")


def _peer_matches(peer, source, labels):
    if source == "monitoring":
        return "namespaceSelector" in peer
    return source is not None and "podSelector" in peer and "namespaceSelector" not in peer and matches(peer["podSelector"], labels)


def _allows(name, direction, pod_labels, other, other_labels, port):
    """As a network plugin decides: no policy of this direction for the pod, or one rule of any that allows it."""
    policies = [
        p["spec"]
        for p in of_kind(name, "NetworkPolicy")
        if direction.capitalize() in p["spec"]["policyTypes"] and matches(p["spec"]["podSelector"], pod_labels)
    ]
    peers_key = "from" if direction == "ingress" else "to"
    for rule in (rule for policy in policies for rule in policy.get(direction, [])):
        is_peer = peers_key not in rule or any(_peer_matches(peer, other, other_labels) for peer in rule[peers_key])
        if is_peer and any(p["port"] == port and p.get("protocol", "TCP") == "TCP" for p in rule["ports"]):
            return True
    return not policies


def test_network_policies_open_the_clusters_connections_and_no_other(name):
    by_role = pools(name)
    for source in (None, "monitoring", *ROLES):
        for target in ROLES:
            labels = by_role[source].labels if source in ROLES else {}
            for port in by_role[target].container["ports"]:
                number = port["containerPort"]
                is_open = _allows(name, "ingress", by_role[target].labels, source, labels, number)
                connection = (source, target, port["name"])
                assert is_open == (connection in CONNECTIONS), connection
                if source in ROLES:
                    is_sent = _allows(name, "egress", labels, target, by_role[target].labels, number)
                    assert is_sent == (connection in CONNECTIONS - CLOSED_AT_THE_SENDER), connection
    for role in ROLES:
        assert _allows(name, "egress", by_role[role].labels, None, {}, 53), "names are resolved"
        for port in (443, 6443):
            assert _allows(name, "egress", by_role[role].labels, None, {}, port) == (role == "router"), "the API server"


def test_every_pool_makes_the_same_pods_whoever_owns_them(name):
    """The variants differ in their owner alone; an overlay of one is compared by the tests of what it changes."""
    if name.startswith("overlays/"):
        pytest.skip("overlays change what they must")

    def without_hashes(pool):
        spec = pool.spec | {"volumes": [v if "configMap" not in v else v["name"] for v in pool.spec["volumes"]]}
        return spec, pool.labels

    for role, pool in pools(name).items():
        assert without_hashes(pool) == without_hashes(pools("statefulset")[role])
