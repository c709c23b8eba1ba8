from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

# For modules that several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))

import small_images
from watched import at_work

from hermes_backend_singularity.backend import SingularityBackend
from hermes_backend_singularity.options import SingularityOptions


@pytest.fixture(scope="session")
def image() -> str:
    """A sandbox directory with bash and Python."""
    return str(small_images.sandbox())


@pytest.fixture
def options(image: str, tmp_path: Path) -> dict[str, Any]:
    """Options of a backend that writes everything into the test's own directory."""
    return {
        "program": small_images.program(),
        "image": image,
        "cache_dir": tmp_path / "cache",
        "scratch_dir": tmp_path / "scratch",
    }


@pytest_asyncio.fixture
async def backend(options: dict[str, Any], tmp_path: Path) -> AsyncIterator[SingularityBackend]:
    """A backend with the small image."""
    made = SingularityBackend(SingularityOptions(**options))
    made.lease_dir = tmp_path / "leases"
    yield made
    await made.aclose()


@pytest.fixture(autouse=True)
def _blobs_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(small_images.HERE / "blobs"))


@pytest.fixture
def leftovers(tmp_path: Path) -> Iterator[None]:
    """Fail if a test leaves a process that names its directory, as an instance's parent does."""
    yield
    assert at_work(tmp_path) == []
