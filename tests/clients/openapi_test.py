"""schemathesis reads /openapi.json and asks for whatever it says may be asked, and for what it says may not: nothing is
answered otherwise than the document says."""

import json

import pytest

from tests.clients.environment import run
from tests.e2e import cluster as clusters

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
EXAMPLES = 20  # of each path


@pytest.fixture
def small_cluster(tmp_path):
    """Where any request ends soon: most of them do not say how long an answer may be."""
    options = clusters.Options(context_length=192, router={"max_choices_per_request": 2})
    with clusters.Cluster(tmp_path / "cluster", CHECKPOINT, options) as cluster:
        yield cluster
        cluster.wait_at_rest(seconds=30)


@pytest.mark.large
def test_the_surface_is_what_its_document_says(small_cluster, tmp_path):
    document = json.loads(clusters.get(small_cluster.url + "/openapi.json")[1])
    # schemathesis leaves out the path that the document comes from.
    asked = [entry for path, entry in document["paths"].items() if path != "/openapi.json"]
    operations = sum(len(set(entry) - {"parameters"}) for entry in asked)
    printed = run(
        "schemathesis",
        ["-m", "schemathesis.cli", "run", small_cluster.url + "/openapi.json", "--checks", ",".join(CHECKS)]
        + ["--max-examples", EXAMPLES, "--seed", 1, "--generation-deterministic", "--phases", "coverage,fuzzing"]
        + ["--request-timeout", 120, "--suppress-health-check", "all", "--workers", 1, "--warnings", "off"],
        tmp_path,
    )
    assert f"{operations} selected / {operations} total" in printed and "No issues found" in printed, printed[-3000:]
