from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# For modules that several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from slurm_cluster import SlurmCluster


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide an allocation that the tests themselves may be running in."""
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
    """An allocation of both nodes that the tests of a module share; one per test would wait for the previous one."""
    with slurm.allocation(2) as job:
        yield job


@pytest.fixture
def own_slurm() -> Iterator[SlurmCluster]:
    """A cluster of two nodes for one test alone, which may damage it."""
    cluster = SlurmCluster().start()
    yield cluster
    cluster.stop()
