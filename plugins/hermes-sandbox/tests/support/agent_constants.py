"""Agents that wait longer, or shorter, than they are made to: so the machine has no part in when they give up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from hermes_sandbox.protocol import bootstrap


class SetConstants(Protocol):
    """Has the agents that start from now on use other values for what is set at the top of their modules."""

    def __call__(self, **values: float) -> None: ...


@contextmanager
def changed_constants(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetConstants]:
    """Give what changes the constants of agents; afterwards they are as they were."""
    source = bootstrap.agent_source()

    def change(**values: float) -> None:
        text = source
        for name, value in values.items():
            text, count = re.subn(rf"^{name} = [0-9.]+$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1, f"{name} is set {count} times"
        monkeypatch.setattr(bootstrap, "agent_source", lambda: text)
        bootstrap._message.cache_clear()

    yield change
    bootstrap._message.cache_clear()
