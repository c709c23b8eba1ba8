"""`hermes-core parsers`: list them, find the one for a model or a template, try one on a text."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_core.cli import json_object, positive_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_core.discovery import PluginSettings, Registry
    from hermes_core.specs import Declaration


class ParsersCommand:
    """The subcommand `parsers`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subcommands."""
        parser.description = "Inspect tool-call parsers, including those of other plugins."
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list the installed parsers and their names")
        detecting = actions.add_parser("detect", help="find the parser for a model or a chat template")
        _configure_detect(detecting)
        trying = actions.add_parser("try", help="parse a text and show its segments, attempts and calls")
        _configure_try(trying)
        for action in (listing, detecting, trying):
            action.add_argument("--json", action="store_true", help="print JSON; its shape is stable")

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand."""
        registry = _load(getattr(arguments, "plugin_settings", None))
        if arguments.action == "detect":
            from hermes_parsers.cli.detect import run_detect

            return run_detect(arguments, registry)
        if arguments.action == "try":
            from hermes_parsers.cli.try_parser import run_try

            return run_try(arguments, registry)
        return _list(registry, as_json=arguments.json)


def _configure_detect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Find the parser by the marks in a chat template's text, which is read and never run, or by a model's name. "
        "Exit 1 if no parser is certain or the parser is not installed."
    )
    parser.add_argument(
        "source",
        nargs="?",
        metavar="FILE",
        help="a chat template, a tokenizer_config.json, or a model's folder; - reads standard input",
    )
    parser.add_argument("--model", metavar="ID", help="a Hugging Face id, or the name a model is served under")


def _configure_try(parser: argparse.ArgumentParser) -> None:
    parser.description = "Parse what a model wrote, including special tokens, and show the parser's result."
    parser.add_argument("name", metavar="NAME", help="the parser; see: hermes-core parsers list")
    source = parser.add_argument(
        "source", default="-", metavar="[FILE]", help="a file with the text; by default, or as -, standard input"
    )
    # With nargs="?", Python 3.11 would treat it as missing when options come between NAME and FILE.
    source.required = False
    parser.add_argument("--tools", metavar="FILE", help="JSON list of tool schemas, as in a chat completion request")
    parser.add_argument(
        "--options",
        type=partial(json_object, "--options"),
        default={},
        metavar="JSON",
        help="JSON object of the parser's options",
    )
    parser.add_argument("--lenient", action="store_true", help="repair what can be repaired, and report it")
    parser.add_argument(
        "--stream", type=positive_number, metavar="N", help="feed it in pieces of N characters, show events"
    )
    parser.add_argument("--full", action="store_true", help="show long texts in full")


def _load(settings: PluginSettings | None) -> Registry:
    import contextlib

    from hermes_core.discovery import load_plugins

    # Output that a plugin prints while it is imported must not end up in the JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return load_plugins(settings, environ=os.environ)


def _list(registry: Registry, *, as_json: bool) -> int:
    found = list(_parsers(registry))
    conflicts = [conflict for conflict in registry.conflicts if conflict.kind == "parser"]
    if as_json:
        from hermes_parsers.cli.screen import print_json

        disputed = [{"name": conflict.name, "plugins": list(conflict.plugins)} for conflict in conflicts]
        print_json({"parsers": found, "conflicts": disputed})
        return 0
    _print_list(found)
    for conflict in conflicts:
        from hermes_core.discovery import conflict_text

        name = f"parser:{conflict.name}"
        sys.stdout.write(f"CONFLICT {name}: {conflict_text(name, conflict.plugins)}\n")
    return 0


def _parsers(registry: Registry) -> Iterator[dict[str, Any]]:
    """Describe every parser once; names that a plugin declares with the same target and description are aliases."""
    for record in registry.plugins:
        names: dict[Declaration, list[str]] = {}
        for kind, spec in record.declared:
            if kind == "parser":
                names.setdefault(dataclasses.replace(spec, name="x"), []).append(spec.name)
        for spec, (name, *aliases) in names.items():
            component = registry.component("parser", f"{record.id}:{name}")
            yield {
                "name": name,
                "aliases": aliases,
                "plugin": record.id,
                "summary": spec.summary,
                "state": str(component.state),
                "reason": component.reason,
            }


def _print_list(found: list[dict[str, Any]]) -> None:
    from hermes_parsers.cli.screen import Screen

    screen = Screen(sys.stdout, os.environ)
    width = max((len(parser["name"]) for parser in found), default=0)
    plugin = None
    for parser in found:
        if parser["plugin"] != plugin:
            plugin = parser["plugin"]
            screen.line(screen.paint(plugin, "strong"))
        name = screen.paint(f"{parser['name']:{width}}", "good" if not parser["reason"] else "bad")
        screen.line(f"  {name}  {screen.escape(parser['summary'])}")
        if parser["aliases"]:
            screen.line(screen.paint(f"  {'':{width}}  also: {' '.join(parser['aliases'])}", "faint"))
        if parser["reason"]:
            screen.line(f"  {'':{width}}  {parser['state']}: {screen.escape(parser['reason'])}")
    if not found:
        screen.line("no plugin declares a parser; see: hermes-core plugins list --load")
