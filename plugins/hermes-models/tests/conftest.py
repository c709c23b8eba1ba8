from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(Path(__file__).parent / "support"))

from chat_server import connecting, serving_answers


@pytest.fixture
async def server():
    """A chat server on the loopback interface; `server.set_answers` sets its answers."""
    async with serving_answers() as server:
        yield server


@pytest.fixture
async def connect(server):
    """Make chat clients of that server, closed after the test."""
    async with connecting(server) as make:
        yield make
