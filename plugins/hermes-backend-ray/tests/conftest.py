from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

# For modules that several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from ray_cluster import RayCluster

# It needs the test server of hermes-tokens, which is missing if this package is installed alone.
_TOKENS = Path(__file__).parents[2] / "hermes-tokens" / "tests" / "support"
collect_ignore = [] if _TOKENS.is_dir() else ["test_ray_engine_tokens.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow for a busy machine: a cluster takes a minute to start there, and the first test waits for it."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A real cluster of three nodes, one for all workers of this run; a test that kills a node adds that node first."""
    folder = tmp_path_factory.getbasetemp()
    # With xdist, each worker has its own folder below that of the run.
    cluster = RayCluster.shared(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def ray_driver(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster, with this process connected to it; backends share the connection and do not close it."""
    ray.init(ray_cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray_cluster
    ray.shutdown()
