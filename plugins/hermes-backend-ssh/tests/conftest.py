from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Shared by several test modules; importlib mode does not put test folders on the path.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from sshd_server import SshServer


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """An sshd that every test of a module shares."""
    server = SshServer(tmp_path_factory.mktemp("sshd") / "server").start()
    yield server
    server.stop()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[SshServer]:
    """An sshd of the test's own, to be treated badly."""
    server = SshServer(tmp_path / "sshd").start()
    yield server
    server.stop()
