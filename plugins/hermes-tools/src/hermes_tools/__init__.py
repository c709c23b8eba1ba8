"""The built-in tools of hermes-core: terminal, background processes, files, search, patch, todo.

`catalog` declares them without importing one. An application that embeds rollouts needs the names below, which are
imported on first use (PEP 562).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tools.command_output import process_limit_note, shorten_output
    from hermes_tools.processes.process_actions import RolloutProcesses
    from hermes_tools.processes.process_registry import ProcessRegistry
    from hermes_tools.processes.process_session import ProcessSession

_HOMES = {
    "ProcessRegistry": "processes.process_registry",
    "ProcessSession": "processes.process_session",
    "RolloutProcesses": "processes.process_actions",
    "process_limit_note": "command_output",
    "shorten_output": "command_output",
}

__all__ = ["ProcessRegistry", "ProcessSession", "RolloutProcesses", "process_limit_note", "shorten_output"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_tools' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"hermes_tools.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
