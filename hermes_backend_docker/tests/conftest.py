from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))

from engine_state import containers_of  # noqa: E402 - found through the line above

from hermes_backend_docker.backend import DockerBackend  # noqa: E402 - belongs below
from hermes_backend_docker.options import DockerOptions  # noqa: E402 - belongs below

IMAGE = "hermes-test:2"
PLAIN_IMAGE = "hermes-plain-test:1"


def _build(name: str, script: str) -> None:
    """Build a small image where the engine does not have it; one of several test processes does."""
    # The script itself is what is locked: a file in /tmp may be another user's.
    with (SUPPORT / script).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False)
        if known.returncode:
            built = subprocess.run([SUPPORT / script, name], capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stderr


@pytest.fixture(scope="session")
def image() -> str:
    """The name of a small image with bash and Python."""
    _build(IMAGE, "build_image.sh")
    return IMAGE


@pytest.fixture(scope="session")
def plain_image() -> str:
    """The name of an image with neither Python nor bash."""
    _build(PLAIN_IMAGE, "build_plain_image.sh")
    return PLAIN_IMAGE


@pytest.fixture(autouse=True)
def _image_where_an_engine_is_needed(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("component"):
        request.getfixturevalue("image")


@pytest_asyncio.fixture
async def backend(image: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    """A backend with the small image."""
    made = DockerBackend(DockerOptions(image=image, pull="never"))
    made.lease_dir = tmp_path / "leases"
    yield made
    await made.aclose()


@pytest.fixture
def leftovers() -> Iterator[None]:
    """Fail when a test leaves a container of this process that was not there before."""
    before = containers_of(os.getpid())
    yield
    assert containers_of(os.getpid()) <= before
