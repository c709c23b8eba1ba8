"""The code that took part in a run, described for storage with its rollouts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import __version__
from hermes_core.discovery.components.component import Component
from hermes_core.discovery.installation.distributions import fingerprint, installed_version
from hermes_core.discovery.installation.metadata import CORE_DISTRIBUTION
from hermes_core.discovery.installation.records import FoundPlugin, PluginRecord


def describe(components: Iterable[Component]) -> list[dict[str, Any]]:
    """Return one entry per plugin of the components, sorted by id, and one of the core."""
    version = installed_version(CORE_DISTRIBUTION) or __version__
    core = FoundPlugin(distribution=CORE_DISTRIBUTION, version=version, name="core", value="hermes_core")
    entries = {core.id: _entry(core)}
    used: dict[str, set[str]] = {core.id: set()}
    for component in components:
        plugin = component.plugin
        if plugin.id not in entries:
            entries[plugin.id] = _local(plugin) if plugin.found.is_local else _entry(plugin.found)
        used.setdefault(plugin.id, set()).add(component.label)
    return [{**entries[id_], "components": sorted(used[id_])} for id_ in sorted(entries)]


def _entry(plugin: FoundPlugin) -> dict[str, Any]:
    return {**_identity(plugin), **fingerprint(plugin)}


def _local(plugin: PluginRecord) -> dict[str, Any]:
    path = plugin.found.path or getattr(plugin.module, "__file__", None)
    # A module imported from a zip file has no file.
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest() if path and Path(path).is_file() else None
    return {**_identity(plugin.found), "file_sha256": digest}


def _identity(plugin: FoundPlugin) -> dict[str, Any]:
    return {
        "plugin": plugin.id,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "entry_point": plugin.value,
        "local": plugin.is_local,
    }
