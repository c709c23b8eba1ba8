"""Which code took part in a run, to be stored with its rollouts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core.discovery.metadata import core_distribution, fingerprint
from hermes_core.discovery.records import Component, FoundPlugin


def describe(components: Iterable[Component]) -> list[dict[str, Any]]:
    """Return one entry per plugin of the components, sorted by id; the core's own is always there."""
    core = core_distribution()
    found: dict[str, FoundPlugin] = {core.id: core}
    used: dict[str, set[str]] = {core.id: set()}
    for component in components:
        plugin = component.plugin.found
        found[plugin.id] = plugin
        used.setdefault(plugin.id, set()).add(component.label)
    return [{**_plugin(found[id_]), "components": sorted(used[id_])} for id_ in sorted(found)]


def _plugin(plugin: FoundPlugin) -> dict[str, Any]:
    entry = {
        "plugin": plugin.id,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "entry_point": plugin.value,
        "local": plugin.is_local,
    }
    if plugin.path is not None:
        return {**entry, "file_sha256": hashlib.sha256(Path(plugin.path).read_bytes()).hexdigest()}
    return {**entry, **fingerprint(plugin)}
