from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

# What several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from ray_cluster import RayCluster

# It plays the test server of hermes-tokens, which is not there where this package is installed alone.
_TOKENS = Path(__file__).parents[2] / "hermes-tokens" / "tests" / "support"
collect_ignore = [] if _TOKENS.is_dir() else ["test_ray_engine_tokens.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests the time of a busy machine: a cluster has starts of a minute there, and whoever is first waits."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A real cluster of three nodes, one for all workers of this run; whoever kills a node adds it first."""
    folder = tmp_path_factory.getbasetemp()
    # With xdist each worker has a folder of its own below the run's.
    cluster = RayCluster.shared(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def ray_driver(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster, with this process connected to it: what a test opens shares the connection and leaves it."""
    ray.init(ray_cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray_cluster
    ray.shutdown()
