"""Find, filter and load plugins; the only room that knows pluggy and the installed metadata.

Names are imported on first use, so that a metadata-only listing pays for nothing else.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery.components import Component, ComponentState, EventProblem
    from hermes_core.discovery.conformance import contract_violations
    from hermes_core.discovery.doctor import diagnose
    from hermes_core.discovery.failures import conflict_text
    from hermes_core.discovery.kinds import KINDS
    from hermes_core.discovery.loader import load_plugins, load_plugins_tolerantly
    from hermes_core.discovery.metadata import CORE_DISTRIBUTION, scan_entry_points
    from hermes_core.discovery.option_schema import OptionSchema
    from hermes_core.discovery.option_secrets import mark_secrets, scrubber_for
    from hermes_core.discovery.records import PluginRecord, PluginState
    from hermes_core.discovery.registry import Registry

_HOMES = {
    "Component": "hermes_core.discovery.components",
    "ComponentState": "hermes_core.discovery.components",
    "EventProblem": "hermes_core.discovery.components",
    "PluginRecord": "hermes_core.discovery.records",
    "PluginSettings": "hermes_core.contracts.plugin_settings",
    "PluginState": "hermes_core.discovery.records",
    "Registry": "hermes_core.discovery.registry",
    "load_plugins": "hermes_core.discovery.loader",
}

__all__ = [
    "CORE_DISTRIBUTION",
    "KINDS",
    "Component",
    "ComponentState",
    "EventProblem",
    "OptionSchema",
    "PluginRecord",
    "PluginSettings",
    "PluginState",
    "Registry",
    "conflict_text",
    "contract_violations",
    "diagnose",
    "known_names",
    "load_plugins",
    "load_plugins_tolerantly",
    "load_tasks",
    "mark_secrets",
    "package_for",
    "scan_entry_points",
    "scrubber_for",
    "unmet_requirements",
    "unreadable_requirements",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core.discovery' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
