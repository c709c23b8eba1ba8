from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

# Shared by several test modules; importlib mode does not put test folders on the path.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_backend_nomad.backend import NomadBackend


@pytest.fixture(scope="session")
def standin_process() -> Iterator[StandIn]:
    """A stand-in for Nomad, shared by all tests, one at a time."""
    if os.geteuid() != 0:
        pytest.skip("the stand-in for Nomad joins the namespaces of its containers, which needs root")
    with StandIn() as standin:
        yield standin


@pytest.fixture
def standin(standin_process: StandIn) -> Iterator[StandIn]:
    """The stand-in without faults; afterwards it must have no unknown requests and no jobs."""
    standin_process.faults()
    yield standin_process
    standin_process.faults()
    errors = standin_process.tell("errors")
    assert errors == []
    assert standin_process.tell("jobs") == {}


@pytest_asyncio.fixture
async def backends(standin: StandIn, tmp_path: Path) -> AsyncIterator[Backends]:
    """Makes backends with options over those that reach the stand-in."""
    backends = Backends(standin.address, tmp_path / "leases")
    yield backends
    for backend in backends.made:
        await backend.aclose()


@pytest.fixture
def backend(backends: Backends) -> NomadBackend:
    """A backend on the stand-in."""
    return backends()
