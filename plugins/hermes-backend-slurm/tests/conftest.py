from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# What several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from slurm_cluster import SlurmCluster


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may do so in an allocation of their own."""
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """A cluster of two nodes that every test of a module shares."""
    cluster = SlurmCluster().start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def job(slurm: SlurmCluster) -> Iterator[str]:
    """An allocation of both nodes that the tests of a module share; one for each would wait for the last one's end."""
    with slurm.allocation(2) as job:
        yield job


@pytest.fixture
def own_slurm() -> Iterator[SlurmCluster]:
    """A cluster of two nodes of the test's own, to be treated badly."""
    cluster = SlurmCluster().start()
    yield cluster
    cluster.stop()
