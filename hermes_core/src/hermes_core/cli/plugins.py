"""`hermes-core plugins`: list from metadata alone, show one, diagnose all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_core.cli.display_text import plural

if TYPE_CHECKING:
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery.doctor import Finding
    from hermes_core.discovery.installation.records import PluginRecord
    from hermes_core.discovery.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    parser.description = "Manage plugins. `list` imports none of them, so it works whatever a plugin does."
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = commands.add_parser("list", help="every installed plugin, from metadata alone")
    listing.add_argument("--load", action="store_true", help="load the plugins; --json then has the components")
    showing = commands.add_parser("show", help="one plugin, or one component such as backend:docker")
    showing.add_argument("name", metavar="NAME", help="a plugin, a component, or KIND:NAME, such as tool:terminal")
    showing.add_argument("--schema", action="store_true", help="import the targets and print their options as schema")
    examining = commands.add_parser("doctor", help="load each plugin in a separate process; exit 1 on an error")
    examining.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="per plugin (%(default)g)")
    for command in (listing, showing, examining):
        command.add_argument("--json", action="store_true", help="print JSON; its shape is stable, the table's is not")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    action = {"list": _list, "show": _show, "doctor": _doctor}[arguments.action]
    return action(arguments, arguments.plugin_settings)


def _list(arguments: argparse.Namespace, settings: PluginSettings) -> int:
    if arguments.load:
        registry = _load(settings)
        records, conflicts = registry.plugins, registry.conflicts
    else:
        from hermes_core.discovery.installation.selection import find_plugins

        records, conflicts = find_plugins(settings), ()
    if arguments.json:
        found = [{"kind": c.kind, "name": c.name, "plugins": list(c.plugins)} for c in conflicts]
        _print_json({"plugins": [record.to_json() for record in records], "conflicts": found})
    else:
        from hermes_core.discovery.components.lookup_errors import conflict_text

        _print_table(records)
        for conflict in conflicts:
            component = f"{conflict.kind}:{conflict.name}"
            sys.stdout.write(f"CONFLICT {component}: {conflict_text(component, conflict.plugins)}\n")
    is_bad = settings.strict and any(record.state in {"failed", "incompatible"} for record in records)
    return 1 if is_bad else 0


def _load(settings: PluginSettings) -> Registry:
    import contextlib
    import os

    from hermes_core.discovery.loader import load_plugins_tolerantly

    # Output of a plugin during its import must not end up in the JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return load_plugins_tolerantly(settings, environ=os.environ)


def _print_table(records: Sequence[PluginRecord]) -> None:
    rows = [("PLUGIN", "DISTRIBUTION", "VERSION", "STATE", "LOAD", "NOTE")]
    for record in records:
        seconds = record.load_seconds
        load = "-" if seconds is None else f"{seconds * 1000:.1f}ms"
        found = record.found
        rows.append((found.name, found.distribution, found.version or "-", str(record.state), load, record.note))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[5]]).rstrip() + "\n")


def _show(arguments: argparse.Namespace, settings: PluginSettings) -> int:
    from hermes_core.discovery.inspection import describe

    described = describe(arguments.name, settings, load=_load, with_schema=arguments.schema)
    if arguments.json:
        _print_json(described)
    else:
        for plugin in described["plugins"]:
            _print_plugin(plugin)
    return 1 if any(plugin["state"] in {"failed", "incompatible"} for plugin in described["plugins"]) else 0


def _print_plugin(plugin: Mapping[str, Any]) -> None:
    components = plugin["components"]
    _print_pairs("", {key: value for key, value in plugin.items() if key != "components"})
    for component in components:
        sys.stdout.write(f"\n{component['kind']}:{component['name']}\n")
        hidden = {"kind", "name", "parameters", "schema"}
        _print_pairs("  ", {key: value for key, value in component.items() if key not in hidden})
        for key in ("parameters", "schema"):
            if component.get(key):
                text = json.dumps(component[key], indent=2, ensure_ascii=False).replace("\n", "\n  ")
                sys.stdout.write(f"  {key}: {text}\n")


def _print_pairs(indent: str, pairs: Mapping[str, Any]) -> None:
    for key, value in pairs.items():
        if value in (None, "", [], {}):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        sys.stdout.write(f"{indent}{key}: {text}\n")


def _doctor(arguments: argparse.Namespace, settings: PluginSettings) -> int:
    import dataclasses

    from hermes_core.discovery.doctor import diagnose

    findings = diagnose(settings, timeout=arguments.timeout)
    if arguments.json:
        _print_json({"findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        _print_findings(findings)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def _print_findings(findings: Iterable[Finding]) -> None:
    counts = {"error": 0, "warning": 0, "ok": 0}
    for finding in findings:
        counts[finding.level] += 1
        sys.stdout.write(f"{finding.level.upper():7}  {finding.subject}  {finding.message}\n")
        if finding.level == "error" and finding.detail:
            sys.stdout.write("".join(f"         | {line}\n" for line in finding.detail.rstrip().splitlines()))
    sys.stdout.write(f"{plural(counts['error'], 'error')}, {plural(counts['warning'], 'warning')}\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
