"""`hermes-core doctor`: for every plugin and every backend, whether it works here, and the next command where not."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.discovery.settings import PluginSettings
    from hermes_core.sandbox.probing import Finding


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = "Load every plugin in a process of its own and start a sandbox on every backend."
    parser.add_argument("backend", nargs="?", metavar="BACKEND", help="only this backend, with its options")
    parser.add_argument("--backend-options", metavar="JSON", default="{}", help="options of the backend that is named")
    parser.add_argument("--json", action="store_true", help="print JSON; its shape is stable, the text's is not")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for loading one plugin")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; exit 1 where a plugin is broken, or the backend that was named works at no level."""
    from hermes_core.contracts.errors import PluginError

    settings: PluginSettings = arguments.plugin_settings
    options = _options(arguments)
    broken = [] if arguments.backend else _broken_plugins(settings, arguments.timeout)
    try:
        rows = _backends(settings, arguments.backend, options)
    except PluginError:
        if not broken:
            raise
        rows = []  # a plugin that was asked for by name is among the broken ones, and stops every command
    if arguments.json:
        sys.stdout.write(json.dumps({"plugins": broken, "backends": rows}, indent=2, ensure_ascii=False) + "\n")
    else:
        _print(broken, rows, everything=arguments.backend is None)
    return 1 if broken or (arguments.backend and not rows[0]["works"]) else 0


def _options(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from hermes_core.contracts.errors import ConfigError

    try:
        options = json.loads(arguments.backend_options)
    except ValueError as error:
        raise ConfigError(
            f"--backend-options is no JSON: {error}", hint='as in \'{"image": "python:3.11"}\''
        ) from error
    if not isinstance(options, dict) or (options and not arguments.backend):
        raise ConfigError("--backend-options is a JSON object, and for the one backend that is named")
    return options


def _broken_plugins(settings: PluginSettings, timeout: float) -> list[dict[str, str]]:
    from hermes_core.discovery.doctor import diagnose

    found = diagnose(settings, timeout=timeout)
    return [{"plugin": one.subject, "message": one.message} for one in found if one.level == "error"]


def _backends(settings: PluginSettings, name: str | None, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    from hermes_core.cli.sandbox_probe import try_backends
    from hermes_core.discovery import load_plugins
    from hermes_core.sandbox.leases import default_lease_dir

    registry = load_plugins(settings)
    names = (name,) if name else registry.names("backend")
    found = asyncio.run(try_backends(registry, names, options, default_lease_dir(), levels_only=True))
    rows = [_row(backend, [one for one in found if one.backend == backend]) for backend in names]
    return rows if name else [*rows, *_absent(registry)]


def _row(name: str, findings: Sequence[Finding]) -> dict[str, Any]:
    troubles: dict[tuple[str, str], list[str]] = {}
    for one in findings:
        if not one.works:
            troubles.setdefault((one.detail, _next(name, one)), []).append(one.isolation)
    return {
        "backend": name,
        "installed": True,
        "works": [one.isolation for one in findings if one.works],
        "troubles": [{"levels": levels, "message": said, "hint": hint} for (said, hint), levels in troubles.items()],
    }


def _next(name: str, finding: Finding) -> str:
    if finding.detail.startswith("the options of "):
        return f"name them: hermes-core doctor {name} --backend-options '{{…}}'; {finding.hint}"
    return finding.hint or ""


def _absent(registry: Registry) -> list[dict[str, Any]]:
    from hermes_core.discovery.suggestions import known_names, package_for

    present = set(registry.names("backend"))
    absent: dict[str | None, str] = {}
    for name in known_names("backend"):
        if name not in present:
            absent.setdefault(package_for("backend", name), name)
    return [
        {
            "backend": name,
            "installed": False,
            "works": [],
            "troubles": [{"levels": [], "message": "it is not installed", "hint": f"pip install {package}"}],
        }
        for package, name in absent.items()
    ]


def _print(broken: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]], *, everything: bool) -> None:
    if everything:
        sys.stdout.write(f"plugins: {len(broken) or 'none'} broken\n")
    for one in broken:
        sys.stdout.write(f"  {one['plugin']}: {one['message']}\n  → hermes-core plugins doctor\n")
    width = max((len(row["backend"]) for row in rows), default=0)
    for row in rows:
        works = f"works at {', '.join(row['works'])}" if row["works"] else "does not work here"
        sys.stdout.write(f"{row['backend']:{width}}  {works if row['installed'] else 'is not installed'}\n")
        for trouble in row["troubles"]:
            _print_trouble(trouble, partly=bool(row["works"]), installed=row["installed"])


def _print_trouble(trouble: Mapping[str, Any], *, partly: bool, installed: bool) -> None:
    at = f"{', '.join(trouble['levels'])}: " if partly else ""
    if installed:
        sys.stdout.write(f"    {at}{trouble['message']}\n")
    if trouble["hint"]:
        sys.stdout.write(f"    → {trouble['hint']}\n")
