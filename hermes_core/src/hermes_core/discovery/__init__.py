"""Find, filter and load plugins; the only room that knows pluggy and the installed metadata.

Names are imported on first use, so that a metadata-only listing pays for nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.discovery.components import Component, ComponentState, EventProblem
    from hermes_core.discovery.loader import load_plugins
    from hermes_core.discovery.records import PluginRecord, PluginState
    from hermes_core.discovery.registry import Registry
    from hermes_core.discovery.settings import PluginSettings

_HOMES = {
    "Component": "components",
    "ComponentState": "components",
    "EventProblem": "components",
    "PluginRecord": "records",
    "PluginSettings": "settings",
    "PluginState": "records",
    "Registry": "registry",
    "load_plugins": "loader",
}

__all__ = [
    "Component",
    "ComponentState",
    "EventProblem",
    "PluginRecord",
    "PluginSettings",
    "PluginState",
    "Registry",
    "load_plugins",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core.discovery' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"hermes_core.discovery.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
