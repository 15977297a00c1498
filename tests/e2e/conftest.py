"""Fixtures: checkpoints once per session, one shared cluster for tests that only ask, fresh ones for the rest."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.e2e import cluster as clusters  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="repeat load and faults for as long as real clusters met them")


@pytest.fixture
def is_long(request):
    """Whether this run may take many minutes (tools/test.sh --long)."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def micro(tmp_path_factory):
    """Folder of a v32-micro checkpoint: sparse attention from 17 tokens on."""
    return clusters.make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "v32-micro", "v32-micro")


@pytest.fixture(scope="session")
def shared_cluster(micro, tmp_path_factory):
    with clusters.Cluster(tmp_path_factory.mktemp("shared") / "cluster", micro) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """The shared cluster, at rest before the test and again after it."""
    yield shared_cluster
    shared_cluster.wait_at_rest()


@pytest.fixture
def fresh_cluster(micro, tmp_path):
    """Starts a cluster of the test's own: fresh_cluster(option=value, ...) -> Cluster to be entered."""
    count = 0

    def make(**options):
        nonlocal count
        count += 1
        return clusters.Cluster(tmp_path / f"cluster{count}", micro, clusters.Options(**options))

    return make
