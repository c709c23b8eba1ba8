"""Decide which plugins may load, before any of them is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.installation.metadata import CORE_DISTRIBUTION, normalise, scan_entry_points
from hermes_core.discovery.installation.records import LOCAL, FoundPlugin, PluginRecord, PluginState
from hermes_core.nearest import did_you_mean


def find_plugins(settings: PluginSettings) -> tuple[PluginRecord, ...]:
    """Return every plugin as found or blocked, or as failed if its metadata cannot be read."""
    found = add_local(scan_entry_points(), settings.extra)
    reasons = block_reasons(found, settings)
    return tuple(_record_of(plugin, reasons.get(plugin.id)) for plugin in found)


def matches(name: str, plugin: FoundPlugin) -> bool:
    """Tell whether a distribution name, an entry-point name or a qualified name means this plugin."""
    distribution, _, entry = name.rpartition(":")
    if distribution:
        return (normalise(distribution), normalise(entry)) == (plugin.distribution, normalise(plugin.name))
    return normalise(name) in {plugin.distribution, normalise(plugin.name)}


def resolve(name: str, plugins: Sequence[FoundPlugin], origin: str) -> list[FoundPlugin]:
    """Return the plugins a name means; `origin` says where the name was written.

    An unknown name, or one that means plugins of several distributions, is an error: a filter without effect would
    admit what it should exclude.
    """
    found = [plugin for plugin in plugins if matches(name, plugin)]
    if not found:
        raise ConfigError(f"{origin} names {name!r}, which is not an installed plugin", hint=_nearest(name, plugins))
    if len({plugin.distribution for plugin in found}) > 1:
        ids = ", ".join(plugin.id for plugin in found)
        raise ConfigError(f"{origin} names {name!r}, which means several plugins: {ids}", hint="write one of these")
    return found


def add_local(found: Iterable[FoundPlugin], extra: Iterable[str]) -> tuple[FoundPlugin, ...]:
    """Add the local plugins among `extra` to the installed ones and sort them all by distribution and name."""
    plugins = list(found)
    for item in extra:
        if any(matches(item, plugin) or plugin.value == item for plugin in plugins):
            continue
        local = _local(item)
        if local in plugins:
            continue
        if any(plugin.id == local.id for plugin in plugins):
            raise ConfigError(f"two local plugins are called {local.name!r}", hint="rename one of the files")
        plugins.append(local)
    return tuple(sorted(plugins, key=lambda plugin: (plugin.distribution, plugin.name)))


def block_reasons(plugins: Sequence[FoundPlugin], settings: PluginSettings) -> dict[str, str]:
    """Return the ids of the plugins that must not load, with the reason; unknown names in a filter are errors."""
    reasons: dict[str, str] = {}
    asked = {plugin.id for plugin in plugins if is_asked_for(plugin, settings)}
    if settings.allow is not None:
        names = ", ".join(settings.allow) or "nothing"
        admitted = {p.id for name in settings.allow for p in resolve(name, plugins, "HERMES_PLUGINS or plugins.allow")}
        for plugin in plugins:
            if plugin.id not in admitted | asked:
                reasons[plugin.id] = f"not in the allow-list, which admits {names}"
    for name in settings.disable:
        for plugin in resolve(name, plugins, "HERMES_PLUGINS_DISABLE, plugins.disable or -p no:"):
            reasons[plugin.id] = f"disabled as {name!r}"
    return reasons


def admit_only(records: Iterable[PluginRecord], settings: PluginSettings) -> PluginSettings:
    """Return the settings with which these plugins are loaded alone, those that are blocked left out."""
    found = [record.found for record in records if record.state is PluginState.FOUND]
    installed = tuple(plugin.id for plugin in found if not plugin.is_local)
    local = tuple(plugin.value for plugin in found if plugin.is_local)
    return dataclasses.replace(settings, allow=installed, extra=local, disable=(), prefer={})


def is_asked_for(plugin: FoundPlugin, settings: PluginSettings) -> bool:
    """Tell whether the user asked for this plugin by name, so that its failure is an error."""
    return plugin.is_local or any(matches(item, plugin) or plugin.value == item for item in settings.extra)


def _record_of(plugin: FoundPlugin, reason: str | None) -> PluginRecord:
    if reason is not None:
        return PluginRecord(found=plugin, state=PluginState.BLOCKED, note=reason)
    if plugin.problem is not None:
        return PluginRecord(found=plugin, state=PluginState.FAILED, note=plugin.problem)
    return PluginRecord(found=plugin, state=PluginState.FOUND)


def _local(item: str) -> FoundPlugin:
    if not item.endswith(".py") and "/" not in item:
        if not all(part.isidentifier() for part in item.split(".")):
            raise ConfigError(
                f"{item!r} is not an installed plugin, a module or a path", hint="see: hermes-core plugins list"
            )
        return FoundPlugin(distribution=LOCAL, version="", name=item, value=item)
    path = Path(item).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"there is no plugin file {item!r}", hint=f"looked for {path}")
    return FoundPlugin(distribution=LOCAL, version="", name=path.stem, value=str(path), path=str(path))


def _nearest(name: str, plugins: Sequence[FoundPlugin]) -> str:
    if normalise(name) == CORE_DISTRIBUTION:
        return "remove the name: the core itself is always used, and it is not a plugin"
    known = [word for plugin in plugins for word in (plugin.distribution, plugin.name)]
    every = f"known plugins: {', '.join(plugin.id for plugin in plugins) or 'none'}"
    return did_you_mean(normalise(name), known, also=every)
