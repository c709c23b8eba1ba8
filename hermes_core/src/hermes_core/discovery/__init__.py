"""Find, filter and load plugins; the only room that knows pluggy and the installed metadata.

Names are imported on first use, so that a metadata-only listing pays for nothing else.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery.components.component import Component, ComponentState, EventProblem
    from hermes_core.discovery.components.conformance import contract_violations
    from hermes_core.discovery.components.lookup_errors import conflict_text
    from hermes_core.discovery.components.option_schema import OptionSchema
    from hermes_core.discovery.components.suggestions import known_names, package_for
    from hermes_core.discovery.doctor import diagnose
    from hermes_core.discovery.installation.metadata import CORE_DISTRIBUTION, scan_entry_points
    from hermes_core.discovery.installation.records import PluginRecord, PluginState
    from hermes_core.discovery.installation.requirements import unmet_requirements, unreadable_requirements
    from hermes_core.discovery.kinds import KINDS
    from hermes_core.discovery.loader import load_plugins, load_plugins_tolerantly
    from hermes_core.discovery.option_secrets import mark_secrets, scrubber_for
    from hermes_core.discovery.registry import Registry
    from hermes_core.discovery.tasks import load_tasks

__all__ = [
    "CORE_DISTRIBUTION", "KINDS", "Component", "ComponentState", "EventProblem", "OptionSchema", "PluginRecord",
    "PluginSettings", "PluginState", "Registry", "conflict_text", "contract_violations", "diagnose",
    "known_names", "load_plugins", "load_plugins_tolerantly", "load_tasks", "mark_secrets", "package_for",
    "scan_entry_points", "scrubber_for", "unmet_requirements", "unreadable_requirements",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".components.component": "Component ComponentState EventProblem",
            ".components.conformance": "contract_violations",
            ".components.lookup_errors": "conflict_text",
            ".components.option_schema": "OptionSchema",
            ".components.suggestions": "known_names package_for",
            ".doctor": "diagnose",
            ".installation.metadata": "CORE_DISTRIBUTION scan_entry_points",
            ".installation.records": "PluginRecord PluginState",
            ".installation.requirements": "unmet_requirements unreadable_requirements",
            ".kinds": "KINDS",
            ".loader": "load_plugins load_plugins_tolerantly",
            ".option_secrets": "mark_secrets scrubber_for",
            ".registry": "Registry",
            ".tasks": "load_tasks",
            "hermes_core.contracts.plugin_settings": "PluginSettings",
        },
    )
