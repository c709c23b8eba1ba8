"""Describe one plugin or one component in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.installation.distributions import fingerprint
from hermes_core.discovery.installation.records import PluginRecord, PluginState
from hermes_core.discovery.installation.selection import admit_only, find_plugins, matches
from hermes_core.discovery.kinds import KINDS
from hermes_core.discovery.registry import Registry
from hermes_core.nearest import did_you_mean
from hermes_core.specs import ComponentSpec, Declaration


def describe(
    name: str, settings: PluginSettings, *, load: Callable[[PluginSettings], Registry], with_schema: bool = False
) -> dict[str, Any]:
    """Describe the plugins or components a name means; a plugin's name loads that plugin alone.

    Targets are imported only for the schema of their options; blocked plugins are never imported.
    """
    records = find_plugins(settings)
    chosen = [record for record in records if matches(name, record.found)]
    registry = load(admit_only(chosen, settings) if chosen else settings)
    plugins = []
    for record in chosen or registry.plugins:
        current = next((r for r in registry.plugins if r.found == record.found), record)
        declared = [
            (kind, spec) for kind, spec in current.declared if chosen or name in {spec.name, f"{kind}:{spec.name}"}
        ]
        if chosen or declared:
            shown = record if record.state is PluginState.BLOCKED else current
            plugins.append(_plugin(registry, shown, declared, with_schema=with_schema))
    if not plugins:
        words = {w for r in registry.plugins for w in (r.found.distribution, r.id, *r.to_json()["components"])}
        known = sorted({*words, *(word.rpartition(":")[2] for word in words)})
        hint = did_you_mean(name, known, otherwise=f"plugins: {', '.join(record.id for record in records)}")
        raise ConfigError(f"{name!r} is neither a plugin nor a loaded component", hint=hint)
    return {"plugins": plugins}


def _plugin(
    registry: Registry, record: PluginRecord, declared: Iterable[tuple[str, Declaration]], *, with_schema: bool
) -> dict[str, Any]:
    components = [_component(registry, record, kind, spec, with_schema=with_schema) for kind, spec in declared]
    return {**record.to_json(), **fingerprint(record.found), "components": components}


def _component(
    registry: Registry, record: PluginRecord, kind: str, spec: Declaration, *, with_schema: bool
) -> dict[str, Any]:
    qualified = f"{record.id}:{spec.name}"
    schema = _schema(registry, kind, qualified) if with_schema and isinstance(spec, ComponentSpec) else None
    component = registry.component(kind, qualified)
    described = {"kind": kind, **spec.to_json(), "state": str(component.state), "reason": component.reason}
    return {**described, "protocol": KINDS[kind].protocol, "schema": schema}


def _schema(registry: Registry, kind: str, name: str) -> dict[str, Any] | None:
    try:
        options = getattr(registry.load(kind, name), "Options", None)
    except HermesError:
        # The component's state and reason say so.
        return None
    schema: dict[str, Any] | None = None if options is None else options.model_json_schema()
    return schema
