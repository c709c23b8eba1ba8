"""Machines that can be told to run commands: what a backend needs besides the way to them.

A backend for such machines subclasses `MachineBackend`, brings a `Link`, and extends `MachineOptions`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_sandbox.remote.backend import MachineBackend
    from hermes_sandbox.remote.link import Ended, Link, Program
    from hermes_sandbox.remote.options import MachineOptions

__all__ = ["Ended", "Link", "MachineBackend", "MachineOptions", "Program"]

_HOMES = {
    "Ended": "link",
    "Link": "link",
    "MachineBackend": "backend",
    "MachineOptions": "options",
    "Program": "link",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
