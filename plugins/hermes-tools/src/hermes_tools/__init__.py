"""Built-in tools, toolsets and distributions, the check of arguments, the result budget, background processes.

Import the module you need; `catalog` declares the tools without importing them. Only what an embedding application
needs of the background processes has its name here, imported on first use (PEP 562): the package imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tools.processes.process_actions import RolloutProcesses
    from hermes_tools.processes.process_registry import ProcessRegistry
    from hermes_tools.processes.process_session import ProcessSession

_HOMES = {
    "ProcessRegistry": "processes.process_registry",
    "ProcessSession": "processes.process_session",
    "RolloutProcesses": "processes.process_actions",
}

__all__ = ["ProcessRegistry", "ProcessSession", "RolloutProcesses"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_tools' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"hermes_tools.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
