"""What `kubectl kustomize` makes of deploy/k8s, and the few questions that the tests ask of it."""

import dataclasses
import functools
import shutil
import subprocess

import pytest
import yaml

from tests.e2e.cluster import ROOT

FOLDER = ROOT / "deploy" / "k8s"
EVERY_KUSTOMIZATION = sorted(str(p.parent.relative_to(FOLDER)) for p in FOLDER.rglob("kustomization.yaml"))
# Those that stand for a whole cluster: what a person applies.
POOLS = ["statefulset", "lws/leaderworkerset", "lws/disaggregatedset", "rbg/v1alpha1", "rbg/v1alpha2"]
OVERLAYS = [name for name in EVERY_KUSTOMIZATION if name.startswith("overlays/")]
DEPLOYABLE = POOLS + OVERLAYS
AUTOSCALING = {"autoscaling/hpa": "lws/leaderworkerset", "autoscaling/keda": "rbg/v1alpha2"}
ROLES = ("router", "prefill", "decode")


@functools.cache
def build(name):
    """The objects of deploy/k8s/<name>."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed: apt-get install kubernetes-client")
    made = subprocess.run([kubectl, "kustomize", FOLDER / name], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    objects = [o for o in yaml.safe_load_all(made.stdout) if o is not None]
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(set(names)) == len(names), f"twice in {name}: {names}"
    return objects


def of_kind(name, kind):
    return [o for o in build(name) if o["kind"] == kind]


def named(name, kind, object_name):
    (found,) = [o for o in of_kind(name, kind) if o["metadata"]["name"] == object_name]
    return found


@dataclasses.dataclass
class Pool:
    """Pods of one role, whoever makes them."""

    owner: dict  # the object
    replicas: int
    template: dict
    rollout: dict  # maxUnavailable and what else the owner knows
    size: int = 1  # pods of one replica

    @property
    def labels(self):
        return self.template["metadata"]["labels"]

    @property
    def role(self):
        return self.labels["app.kubernetes.io/component"]

    @property
    def spec(self):
        return self.template["spec"]

    @property
    def container(self):
        (only,) = self.spec["containers"]
        return only

    def port(self, port_name):
        (found,) = [p["containerPort"] for p in self.container["ports"] if p["name"] == port_name]
        return found


def _lws_pool(owner, spec):
    group = spec["leaderWorkerTemplate"]
    assert "leaderTemplate" not in group, "one template for every rank"
    return Pool(
        owner, spec["replicas"], group["workerTemplate"], spec["rolloutStrategy"]["rollingUpdateConfiguration"], group["size"]
    )


def pools(name):
    """role -> Pool of deploy/k8s/<name>; every kind that makes pods is known here, or the test fails."""
    found = []
    for o in build(name):
        kind, spec = o["kind"], o.get("spec", {})
        if kind == "Deployment":
            found.append(Pool(o, spec["replicas"], spec["template"], spec["strategy"]["rollingUpdate"]))
        elif kind == "StatefulSet":
            found.append(Pool(o, spec["replicas"], spec["template"], {}))
        elif kind == "LeaderWorkerSet":
            found.append(_lws_pool(o, spec))
        elif kind == "DisaggregatedSet":
            found += [_lws_pool(o, role["spec"]) for role in spec["roles"]]
        elif kind == "RoleBasedGroup":
            for role in spec["roles"]:
                template = role["template"] if "template" in role else role["standalonePattern"]["template"]
                found.append(Pool(o, role["replicas"], template, role["rolloutStrategy"]["rollingUpdate"]))
        else:
            assert "containers:" not in yaml.safe_dump(o), f"{kind} makes pods that no test looks at"
    by_role = {pool.role: pool for pool in found}
    assert len(by_role) == len(found) and set(by_role) == set(ROLES), [pool.role for pool in found]
    return by_role


def config_text(name, pool):
    """The file that the pod's service reads: (file name, text)."""
    (volume,) = [v for v in pool.spec["volumes"] if "configMap" in v]
    (item,) = named(name, "ConfigMap", volume["configMap"]["name"])["data"].items()
    return item


def config(name, pool):
    return yaml.safe_load(config_text(name, pool)[1])


def matches(selector, labels):
    assert set(selector) == {"matchLabels"}, selector
    return selector["matchLabels"].items() <= labels.items()
