"""What the installed distributions say; the one module that calls `importlib.metadata`.

The standard library's version is used on every Python: the backport was measured slower and brings two dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hermes_core.discovery.records import FoundPlugin

GROUP: Final = "hermes_core.plugins"
CORE: Final = "hermes-agent-core"


def normalise(name: str) -> str:
    """Return a distribution's or entry point's name in its one comparable form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def scan() -> tuple[FoundPlugin, ...]:
    """Read the plugin entry points of all distributions, sorted by distribution and name; nothing is imported.

    Of several copies of a distribution the first on the path counts, as it does for an import.
    """
    by_name: dict[str, tuple[FoundPlugin, ...]] = {}
    for source in metadata.distributions():
        # Asking for the text first spares the parser for the many distributions without plugins.
        if GROUP not in (source.read_text("entry_points.txt") or ""):
            continue
        plugins = tuple(dict.fromkeys(_plugins_of(source)))
        if plugins:
            by_name.setdefault(plugins[0].distribution, plugins)
    found = [plugin for plugins in by_name.values() for plugin in plugins]
    return tuple(sorted(found, key=lambda plugin: (plugin.distribution, plugin.name)))


def _plugins_of(source: metadata.Distribution) -> Iterator[FoundPlugin]:
    name, version = _identity(source)
    try:
        points = [point for point in source.entry_points if point.group == GROUP]
    except Exception as error:  # noqa: BLE001 - somebody else's broken file must not end the scan
        problem = f"entry_points.txt cannot be read: {type(error).__name__}: {error}"
        yield FoundPlugin(distribution=name, version=version, name="unknown", value="", problem=problem, source=source)
        return
    for point in points:
        yield FoundPlugin(distribution=name, version=version, name=point.name, value=point.value, source=source)


def _identity(source: metadata.Distribution) -> tuple[str, str]:
    # Read by hand: the mail parser behind `source.metadata` goes through the whole README of every distribution.
    text = source.read_text("METADATA") or source.read_text("PKG-INFO") or ""
    header = dict(line.split(": ", 1) for line in text.partition("\n\n")[0].splitlines() if ": " in line)
    return normalise(header.get("Name", "unknown")), header.get("Version", "unknown")


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def copies(distribution: str) -> list[str]:
    """Return the versions of every installed copy of a distribution, the used one first."""
    sources = metadata.distributions(name=distribution)
    # A folder that is on the path twice holds one copy.
    places = dict.fromkeys((_identity(source)[1], Path(str(source.locate_file(""))).resolve()) for source in sources)
    return [version for version, _ in places]


def core_distribution() -> FoundPlugin:
    """Return the core's own distribution, which is recorded whether or not its plugin is admitted."""
    try:
        source = metadata.distribution(CORE)
    except metadata.PackageNotFoundError:
        from hermes_core import __version__

        return FoundPlugin(distribution=CORE, version=__version__, name="core", value="hermes_core.plugin")
    version = _identity(source)[1]
    return FoundPlugin(distribution=CORE, version=version, name="core", value="hermes_core.plugin", source=source)


def fingerprint(plugin: FoundPlugin) -> dict[str, Any]:
    """Return what identifies the installed code: the SHA-256 of RECORD and, if it was no plain wheel, its origin."""
    if plugin.source is None:
        return {"record_sha256": None, "origin": None}
    import hashlib  # loads OpenSSL, which a listing must not pay for

    record = next((file for file in plugin.source.files or () if file.name == "RECORD"), None)
    digest = None
    if record is not None and (path := Path(record.locate())).is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"record_sha256": digest, "origin": _origin(plugin.source.read_text("direct_url.json"))}


def _origin(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    import json

    try:
        direct = json.loads(text)
        # A token in the address must not travel into every rollout file.
        url = re.sub(r"(?<=://)[^/@]*@", "", direct["url"])
    except (ValueError, KeyError, TypeError):
        return {"url": None, "editable": False, "problem": "direct_url.json cannot be read"}
    origin = {"url": url, "editable": bool(direct.get("dir_info", {}).get("editable"))}
    return {
        **origin,
        **{key: value for key, value in direct.get("vcs_info", {}).items() if key != "requested_revision"},
    }
