"""One cluster for all clients, with the checkpoint that answers right; clients that fill environments of their own are
marked `large`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.e2e import cluster as clusters  # noqa: E402

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"


def pytest_configure(config):
    config.addinivalue_line("markers", "large: a client with an environment of its own (tools/test.sh --long)")


@pytest.fixture(scope="session")
def tiny_cluster(tmp_path_factory):
    with clusters.Cluster(tmp_path_factory.mktemp("tiny") / "cluster", CHECKPOINT) as cluster:
        yield cluster


@pytest.fixture
def cluster(tiny_cluster):
    """The shared cluster, at rest again after the test: no client may leave anything behind."""
    yield tiny_cluster
    tiny_cluster.wait_at_rest()
