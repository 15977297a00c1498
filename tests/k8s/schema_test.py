"""Every object is one that Kubernetes, LWS and RBG would take: their own schemas, unknown fields refused."""

import functools

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.e2e.cluster import ROOT
from tests.k8s.manifests import DEPLOYABLE, EVERY_KUSTOMIZATION, build

CRDS = ROOT.parent / "shared" / "data" / "crds"
OLDEST = "1.27"  # the oldest release that the README names
KEDA = "keda.sh/v1alpha1"  # no schema at hand: scaling_test.py reads those objects


def is_custom(o):
    group = o["apiVersion"].rpartition("/")[0]
    return "x-k8s.io" in group and group.partition(".")[0] in ("leaderworkerset", "disaggregatedset", "workloads")


def strict(schema):
    """An OpenAPI schema of a CRD as JSON schema that refuses what the API server would prune."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items()}
    if result.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    is_object = result.get("type") == "object" and isinstance(result.get("properties"), dict)
    if is_object and not result.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    return result


@functools.cache
def custom_schemas():
    """(apiVersion, kind) -> validator."""
    if not CRDS.is_dir():
        pytest.skip(f"no CRDs in {CRDS}: LWS and RBG objects are not checked here")
    found = {}
    for path in CRDS.glob("*.yaml"):
        for crd in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if crd is None:
                continue
            for version in crd["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                key = f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]
                found[key] = jsonschema.Draft7Validator(schema)
    return found


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", EVERY_KUSTOMIZATION)
def test_kubernetes_takes_every_object(name, version):
    for o in build(name):
        if not is_custom(o) and o["apiVersion"] != KEDA:
            # kubectl of Debian writes this field, which means nothing.
            metadata = [o["metadata"]] + [t["metadata"] for t in [o.get("spec", {}).get("template", {})] if t]
            for m in metadata:
                if m.get("creationTimestamp", "") is None:
                    del m["creationTimestamp"]
            kubernetes_validate.validate(o, version, strict=True)


@pytest.mark.parametrize("name", DEPLOYABLE)
def test_custom_resources_fit_the_schemas_of_their_own_definitions(name):
    for o in filter(is_custom, build(name)):
        faults = [f"{list(e.absolute_path)}: {e.message[:300]}" for e in custom_schemas()[o["apiVersion"], o["kind"]].iter_errors(o)]
        assert not faults, f"{o['kind']} {o['metadata']['name']}: {faults}"


def test_a_misspelt_field_is_refused():
    """That the two tests above can fail."""
    for name, kind in (("lws/leaderworkerset", "LeaderWorkerSet"), ("rbg/v1alpha2", "RoleBasedGroup")):
        o = next(o for o in build(name) if o["kind"] == kind)
        broken = o | {"spec": o["spec"] | {"replica": 2}}
        assert list(custom_schemas()[o["apiVersion"], kind].iter_errors(broken))
    deployment = next(o for o in build("statefulset") if o["kind"] == "Deployment")
    broken = deployment | {"spec": deployment["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, OLDEST, strict=True)
