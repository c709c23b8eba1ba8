"""Sandboxes: where a rollout's commands run.

`open_sandbox` is the way in for callers; `AgentBackend` and `SandboxHost` are what a backend's author subclasses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_sandbox.backend.base import AgentBackend
    from hermes_sandbox.backend.host import SandboxHost
    from hermes_sandbox.backend.options import PROCESSES
    from hermes_sandbox.backend.portable_python import NotPortableError, PortablePython, portable_python
    from hermes_sandbox.local.cgroups import remove_group
    from hermes_sandbox.local.kill import kill_processes
    from hermes_sandbox.opening import open_sandbox
    from hermes_sandbox.posix_shell.source import shell_command
    from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
    from hermes_sandbox.protocol.client import AgentStream

__all__ = [
    "PROCESSES",
    "PYTHON_FLAGS",
    "AgentBackend",
    "AgentStream",
    "NotPortableError",
    "PortablePython",
    "SandboxHost",
    "kill_processes",
    "open_sandbox",
    "portable_python",
    "remove_group",
    "shell_command",
]

_HOMES = {
    "AgentBackend": "backend.base",
    "AgentStream": "protocol.client",
    "NotPortableError": "backend.portable_python",
    "PROCESSES": "backend.options",
    "PYTHON_FLAGS": "protocol.bootstrap",
    "PortablePython": "backend.portable_python",
    "SandboxHost": "backend.host",
    "kill_processes": "local.kill",
    "open_sandbox": "opening",
    "portable_python": "backend.portable_python",
    "remove_group": "local.cgroups",
    "shell_command": "posix_shell.source",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
