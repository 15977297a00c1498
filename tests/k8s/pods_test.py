"""What every pod keeps to: no privileges, probes that mean what they say, time to drain, updates that get on."""

import re

import pytest

from tests.k8s.manifests import DEPLOYABLE, FOLDER, OVERLAYS, ROLES, config, named, of_kind, pools

LAST_WORDS = 6  # seconds: what workers have to confirm, and the last bytes (router/request_state.h, router/shard.cc)


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h)", text).groups()
    return float(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def quantity(text):
    number, unit = re.fullmatch(r"([\d.]+)(m|Mi|Gi|)", str(text)).groups()
    return float(number) * {"m": 0.001, "": 1, "Mi": 2**20, "Gi": 2**30}[unit]


each_pod = pytest.mark.parametrize("name,role", [(name, role) for name in DEPLOYABLE for role in ROLES])
each = pytest.mark.parametrize("name", DEPLOYABLE)


@each_pod
def test_no_pod_has_more_rights_than_it_needs(name, role):
    pool = pools(name)[role]
    spec, security = pool.spec, pool.container["securityContext"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert spec["automountServiceAccountToken"] is (role == "router"), "routers alone watch the API server"
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["readOnlyRootFilesystem"] is True and security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security
    assert security["capabilities"]["drop"] == ["ALL"]
    added = security["capabilities"].get("add", [])
    has_rdma = any(resource.startswith("rdma/") for resource in pool.container["resources"]["limits"])
    assert added == (["IPC_LOCK"] if has_rdma else []), "RDMA comes by a device plugin and memory may be locked, no more"
    host_paths = [v for v in spec["volumes"] if "hostPath" in v]
    assert [v["name"] for v in host_paths] in ([], ["model"])
    assert all(m["readOnly"] for m in pool.container["volumeMounts"])
    (namespace,) = of_kind(name, "Namespace")
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    needs_more = any("hostPath" in v for p in pools(name).values() for v in p.spec["volumes"]) or has_rdma
    assert level == ("privileged" if needs_more else "restricted")
    assert named(name, "ServiceAccount", spec["serviceAccountName"])


@each_pod
def test_services_know_each_other_by_a_secret_that_no_manifest_has(name, role):
    pool, process = pools(name)[role], config(name, pools(name)[role])["process"]
    (mount,) = [m for m in pool.container["volumeMounts"] if m["name"] == "peers"]
    assert process["peers"] == {"token_file": mount["mountPath"] + "/token"}
    (volume,) = [v for v in pool.spec["volumes"] if v["name"] == "peers"]
    assert volume["secret"] == {"secretName": "tandem-peers", "defaultMode": 0o440}, "one for all, for the pod's group"
    assert pool.spec["securityContext"]["fsGroup"] == pool.spec["securityContext"]["runAsGroup"]
    assert not of_kind(name, "Secret"), "secrets are named, never written"
    if role != "router":
        assert process["listen_host"] == "0.0.0.0"


@each_pod
def test_images_are_tagged_and_resources_set(name, role):
    pool = pools(name)[role]
    image, _, tag = pool.container["image"].rpartition(":")
    assert image and tag != "latest"
    requests, limits = pool.container["resources"]["requests"], pool.container["resources"]["limits"]
    assert requests["memory"] == limits["memory"] and quantity(requests["cpu"]) > 0
    for resource in set(requests) | set(limits):
        if "/" in resource:  # devices cannot be overcommitted
            assert requests[resource] == limits[resource] > 0
    if role != "router":
        assert config(name, pool)["process"]["num_threads"] == quantity(requests["cpu"]), "0 would take the whole node"


@each_pod
def test_probes_mean_what_they_say(name, role):
    container = pools(name)[role].container
    startup, liveness, readiness = (container[p] for p in ("startupProbe", "livenessProbe", "readinessProbe"))
    assert {startup["httpGet"]["path"], liveness["httpGet"]["path"]} == {"/health"}, "a drain must not end the process"
    assert readiness["httpGet"]["path"] == "/readyz"
    assert 20 <= liveness["periodSeconds"] * liveness["failureThreshold"] <= 60, "a hung process is replaced, a slow one not"
    assert readiness["periodSeconds"] * readiness["failureThreshold"] <= 5


@each_pod
def test_a_drain_has_the_time_that_its_settings_give_it(name, role):
    pool = pools(name)[role]
    grace, process = pool.spec["terminationGracePeriodSeconds"], config(name, pool)["process"]
    if role == "router":
        notice = seconds(process["drain_notice"])
        assert grace > notice + seconds(process["drain_grace"]) + LAST_WORDS
        readiness = pool.container["readinessProbe"]
        assert notice >= 2 * readiness["periodSeconds"] * readiness["failureThreshold"], "Services look away first"
    else:
        assert grace > seconds(process["drain_timeout"]) + LAST_WORDS
    # SIGTERM is the drain and /readyz says so at once: a preStop hook would only keep the process from hearing of it.
    assert "lifecycle" not in pool.container


@each
def test_updates_get_on_when_the_pods_before_them_never_became_ready(name):
    for pool in pools(name).values():
        if pool.owner["kind"] == "StatefulSet":
            assert pool.owner["spec"]["podManagementPolicy"] == "Parallel"
            assert pool.owner["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
        else:
            assert pool.rollout["maxUnavailable"] == 1, "never 0"


@each
def test_a_node_can_be_emptied_and_a_pool_survives_it(name):
    by_role = pools(name)
    for budget in of_kind(name, "PodDisruptionBudget"):
        pool = by_role[budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]]
        assert 1 <= budget["spec"]["minAvailable"] < pool.replicas
    for pool in by_role.values():
        assert {s["topologyKey"] for s in pool.spec["topologySpreadConstraints"]} == {"kubernetes.io/hostname"}


@each
def test_a_replica_is_one_pod_while_workers_are_single_processes(name):
    """A second rank would start and serve nobody: no setting makes one join the other."""
    assert {pool.size for pool in pools(name).values()} == {1}


@pytest.mark.parametrize("name", [name for name in OVERLAYS if "h200" in name])
def test_overlays_that_nobody_has_run_say_so(name):
    assert "**Not run.**" in (FOLDER / name / "README.md").read_text()
    assert (FOLDER / name / "kustomization.yaml").read_text().startswith("# NOT RUN")
