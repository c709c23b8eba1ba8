"""The engine's state, read with its own client program."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from hermes_backend_docker.engine.client import Engine


def containers_of(pid: int) -> set[str]:
    """Return the containers created by a process of this machine, ignoring other users of the engine."""
    asked = ["docker", "ps", "-aq", "--filter", f"label=hermes.lease.owner_pid={pid}"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())


def narrow_sweeps(monkeypatch: pytest.MonkeyPatch, label: str, value: str) -> None:
    """Let sweeps see only the containers with a label: what other programs have left is not the tests' to remove."""
    list_by_label = Engine.list_by_label

    async def find_own(engine: Engine, asked: str) -> list[Mapping[str, Any]]:
        return [entry for entry in await list_by_label(engine, asked) if entry["Labels"].get(label) == value]

    monkeypatch.setattr(Engine, "list_by_label", find_own)
