"""Agents that wait longer, or shorter, than they are made to: so the machine has no part in when they give up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from hermes_sandbox.protocol import bootstrap


class SetConstants(Protocol):
    """Has the agents that start from now on use other values for what is set at the top of a module, as `slot`."""

    def __call__(self, module: str, **values: float) -> None: ...


@contextmanager
def changed_constants(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetConstants]:
    """Give what changes the constants of agents; afterwards they are as they were."""
    sources = dict(bootstrap.agent_sources())

    def change(module: str, **values: float) -> None:
        text = sources[f"hermes_sandbox.agent.{module}"]
        for name, value in values.items():
            text, count = re.subn(rf"^{name} = [0-9.]+$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1, f"{name} is set {count} times in {module}"
        sources[f"hermes_sandbox.agent.{module}"] = text
        monkeypatch.setattr(bootstrap, "agent_sources", lambda: sources)
        bootstrap._message.cache_clear()

    yield change
    bootstrap._message.cache_clear()
