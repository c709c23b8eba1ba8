"""List the plugins of the installed distributions, by reading only the few lines of metadata that this needs.

It uses only the standard library's `importlib.metadata`, because every command pays for it. All other questions to
the metadata are in `distributions`; its library replaces the standard one's finder when it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Final

from hermes_core.discovery.installation.records import FoundPlugin

GROUP: Final = "hermes_core.plugins"
CORE_DISTRIBUTION: Final = "hermes-agent-core"


def normalise(name: str) -> str:
    """Return a distribution's or entry point's name in its normal form (PEP 503), for comparison."""
    return re.sub(r"[-_.]+", "-", name).lower()


def scan_entry_points() -> tuple[FoundPlugin, ...]:
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
    # The text is read and parsed here once: `source.entry_points` reads it again, and another package's broken file
    # would end the scan with an exception.
    try:
        text = source.read_text("entry_points.txt") or ""
        entries = tuple(_entries(text)) if GROUP in text else ()
    except (OSError, ValueError) as error:
        name, version = _identity(source)
        problem = f"entry_points.txt cannot be read: {error}"
        yield FoundPlugin(distribution=name, version=version, name="unknown", value="", problem=problem)
        return
    if entries:
        distribution, version = _identity(source)
        for name, value in entries:
            yield FoundPlugin(distribution=distribution, version=version, name=name, value=value)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == GROUP and line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"expected 'name = module', got {line!r}")
            yield name.strip(), value.strip()


def _identity(source: metadata.Distribution) -> tuple[str, str]:
    fields = header(source.read_text)
    return normalise(fields.get("Name", "unknown")), fields.get("Version", "unknown")


def header(read_text: Callable[[str], str | None]) -> dict[str, str]:
    """Return the first word of each field of a distribution's metadata, none where it cannot be read."""
    # By hand: the mail parser of the library goes through the whole README of every distribution.
    try:
        text = read_text("METADATA") or read_text("PKG-INFO") or ""
    except (OSError, ValueError):
        return {}
    return dict(reversed(re.findall(r"^([\w-]+): *(\S+)", text.partition("\n\n")[0], re.MULTILINE)))
