from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent / "support"))

from standin import StandIn

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions


@pytest.fixture(scope="session")
def running_standin() -> Iterator[StandIn]:
    """The stand-in of the service, a process shared by all tests."""
    with pytest.MonkeyPatch.context() as patch:
        # No test depends on this machine's configuration or reaches the real service.
        for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_SERVER_URL", "MODAL_ENVIRONMENT"):
            patch.delenv(name, raising=False)
        made = StandIn()
        yield made
        unknown = made.ask()["unknown"]
        made.close()
    assert unknown == []


@pytest.fixture
def standin(running_standin: StandIn) -> Iterator[StandIn]:
    """The stand-in without faults."""
    yield running_standin
    running_standin.ask("well")


@pytest_asyncio.fixture
async def backend(standin: StandIn, tmp_path: Path) -> AsyncIterator[ModalBackend]:
    """A backend of the stand-in."""
    made = ModalBackend(ModalOptions(**standin.options))
    made.lease_dir = tmp_path / "leases"
    yield made
    await made.aclose()
