"""Sandboxes: where a rollout's commands run.

`open_sandbox` is the way in for callers; `AgentBackend` and `SandboxHost` are what a backend's author subclasses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.sandbox.backend import AgentBackend
    from hermes_core.sandbox.client import AgentStream
    from hermes_core.sandbox.host import SandboxHost
    from hermes_core.sandbox.opening import open_sandbox
    from hermes_core.sandbox.plain_source import shell_command
    from hermes_core.sandbox.source import PYTHON_FLAGS

__all__ = ["PYTHON_FLAGS", "AgentBackend", "AgentStream", "SandboxHost", "open_sandbox", "shell_command"]

_HOMES = {
    "AgentBackend": "backend",
    "AgentStream": "client",
    "PYTHON_FLAGS": "source",
    "SandboxHost": "host",
    "open_sandbox": "opening",
    "shell_command": "plain_source",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
