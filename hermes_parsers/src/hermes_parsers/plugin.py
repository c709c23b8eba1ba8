"""The plugin module: declarations only."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import CommandSpec, ParserSpec
from hermes_parsers.catalog import FAMILIES


@hookimpl
def hermes_parsers() -> Iterable[ParserSpec]:
    """Declare each format under each of its names."""
    return [
        ParserSpec(name=name, summary=family.summary, target=family.target)
        for family in FAMILIES
        for name in family.names
    ]


@hookimpl
def hermes_parser_for(model_id: str, chat_template: str) -> str | None:
    """Name the parser of a model with a known format; the model's template is more reliable than its name."""
    from hermes_parsers.detection import detect
    from hermes_parsers.models import parser_for

    found = detect(chat_template).name if chat_template else None
    return found or parser_for(model_id)


@hookimpl
def hermes_cli_commands() -> Iterable[CommandSpec]:
    """Declare `hermes-core parsers`."""
    return [
        CommandSpec(
            name="parsers",
            summary="list, detect and try tool-call parsers",
            target="hermes_parsers.cli.parsers:ParsersCommand",
        )
    ]
