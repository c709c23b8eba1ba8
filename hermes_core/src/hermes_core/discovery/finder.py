"""Find and filter plugins from metadata alone; imports neither pluggy nor any plugin."""

from __future__ import annotations

from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery import metadata
from hermes_core.discovery.records import FoundPlugin, PluginRecord, PluginState
from hermes_core.discovery.selection import add_local, block_reasons


def find_plugins(settings: PluginSettings) -> tuple[PluginRecord, ...]:
    """Return every plugin as found or blocked; one whose metadata cannot be read has failed already."""
    found = add_local(metadata.scan_entry_points(), settings.extra)
    reasons = block_reasons(found, settings)
    return tuple(_record_of(plugin, reasons.get(plugin.id)) for plugin in found)


def _record_of(plugin: FoundPlugin, reason: str | None) -> PluginRecord:
    if reason is not None:
        return PluginRecord(found=plugin, state=PluginState.BLOCKED, note=reason)
    if plugin.problem is not None:
        return PluginRecord(found=plugin, state=PluginState.FAILED, note=plugin.problem)
    return PluginRecord(found=plugin, state=PluginState.FOUND)
