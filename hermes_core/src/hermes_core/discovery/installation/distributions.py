"""Installed distributions: versions, copies and origins. The listing of plugins does without, to start faster.

`importlib_metadata` behaves the same on every Python, and skips what a failed removal leaves of a distribution.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from importlib_metadata import Distribution, distributions

from hermes_core.discovery.installation.metadata import header
from hermes_core.discovery.installation.records import FoundPlugin


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if there is none."""
    return next(iter(copies(distribution)), None)


def copies(distribution: str) -> list[str]:
    """Return the versions of every installed copy of a distribution, the used one first."""
    # A folder that is on the path twice holds one copy.
    found = ((version, Path(str(source.locate_file(""))).resolve()) for source, version in _sources(distribution))
    return [version for version, _ in dict.fromkeys(found)]


def fingerprint(plugin: FoundPlugin) -> dict[str, Any]:
    """Return what identifies the installed code: the SHA-256 of RECORD and, unless it is a plain wheel, its origin."""
    sources = [] if plugin.is_local else _sources(plugin.distribution)
    if not sources:
        return {"record_sha256": None, "origin": None}
    source = sources[0][0]
    import hashlib  # loads OpenSSL, which not every command must pay for

    record = next((file for file in source.files or () if file.match("*.dist-info/RECORD")), None)
    digest = None
    if record is not None and (path := Path(str(record.locate()))).is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"record_sha256": digest, "origin": _origin(source.read_text("direct_url.json"))}


def _sources(distribution: str) -> list[tuple[Distribution, str]]:
    """Return the copies with readable metadata and a version, each with that version, in the order of the path."""
    found = ((source, header(source.read_text).get("Version")) for source in distributions(name=distribution))
    return [(source, version) for source, version in found if version]


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
    return {**origin, **{key: item for key, item in direct.get("vcs_info", {}).items() if key != "requested_revision"}}
