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
        plugins = tuple(dict.fromkeys(_plugins_of(source)))
        if plugins:
            by_name.setdefault(plugins[0].distribution, plugins)
    found = [plugin for plugins in by_name.values() for plugin in plugins]
    return tuple(sorted(found, key=lambda plugin: (plugin.distribution, plugin.name)))


def _plugins_of(source: metadata.Distribution) -> Iterator[FoundPlugin]:
    # The text is read and parsed here once: `source.entry_points` reads it again, and somebody else's broken file
    # would end the scan with an exception.
    try:
        text = source.read_text("entry_points.txt") or ""
        entries = tuple(_entries(text)) if GROUP in text else ()
    except (OSError, ValueError) as error:
        name, version = _identity(source)
        problem = f"entry_points.txt cannot be read: {error}"
        yield FoundPlugin(distribution=name, version=version, name="unknown", value="", problem=problem, source=source)
        return
    if entries:
        distribution, version = _identity(source)
        for name, value in entries:
            yield FoundPlugin(distribution=distribution, version=version, name=name, value=value, source=source)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == GROUP and line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} is no 'name = module'")
            yield name.strip(), value.strip()


def _identity(source: metadata.Distribution) -> tuple[str, str]:
    # Read by hand: the mail parser behind `source.metadata` goes through the whole README of every distribution.
    try:
        text = source.read_text("METADATA") or source.read_text("PKG-INFO") or ""
    except (OSError, ValueError):
        text = ""
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
