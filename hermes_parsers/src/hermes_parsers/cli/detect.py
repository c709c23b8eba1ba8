"""`hermes-core parsers detect`: the parser for a model's name, for a chat template, or for both."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import UserError
from hermes_parsers.cli.identity import is_same_parser
from hermes_parsers.cli.screen import Screen, print_json
from hermes_parsers.cli.sources import Template, read_template

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_parsers.detection import Detection


def run_detect(arguments: argparse.Namespace, registry: Registry) -> int:
    """Run the command; return 0 if model and template lead to one and the same installed parser."""
    if arguments.source is None and arguments.model is None:
        raise UserError("expected a chat template or a model, got neither", hint="parsers detect FILE, or --model ID")
    answers: dict[str, Any] = {}
    if arguments.model is not None:
        answers["model"] = _of_model(arguments.model, registry)
    if arguments.source is not None:
        answers["template"] = _of_template(read_template(arguments.source), registry)
    agree = _agree(answers, registry)
    if arguments.json:
        print_json(answers if agree is None else {**answers, "agree": agree})
    else:
        _print(Screen(sys.stdout, os.environ), answers, agree=agree)
    return 0 if agree is not False and all(answer["installed"] for answer in answers.values()) else 1


def _agree(answers: dict[str, Any], registry: Registry) -> bool | None:
    """Tell whether the model and the template lead to the same answer; None if only one of them was given."""
    names = [answer["parser"] for answer in answers.values() if answer["parser"] is not None]
    return is_same_parser(registry, *names) if len(names) == 2 else None


def _of_model(model_id: str, registry: Registry) -> dict[str, Any]:
    from hermes_parsers.models import format_of

    parser = registry.parser_for(model_id) or format_of(model_id)
    return {"id": model_id, "parser": parser, "installed": parser in registry.names("parser")}


def _of_template(template: Template, registry: Registry) -> dict[str, Any]:
    from hermes_parsers.detection import detect

    found: Detection = detect(template.text)
    return {
        "source": template.source,
        "parser": found.name,
        "installed": found.name in registry.names("parser"),
        "evidence": [dataclasses.asdict(evidence) for evidence in found.evidence],
        "runners_up": [dataclasses.asdict(other) for other in found.runners_up],
        "has_response_template": template.has_response_template,
    }


def _print(screen: Screen, answers: dict[str, Any], *, agree: bool | None) -> None:
    model, template = answers.get("model"), answers.get("template")
    if model is not None:
        _print_answer(screen, model, f"for the model {screen.escape(model['id'])}")
        if model["parser"] is None:
            screen.line(
                "  this name is not certain to belong to a known model; detect the parser from its chat template:"
            )
            screen.line("  hermes-core parsers detect FOLDER")
    if template is not None:
        _print_answer(screen, template, f"by the template {screen.escape(template['source'])}")
        _print_marks(screen, template)
    if agree is not None:
        said = "both agree" if agree else "they disagree: a served model follows the template that it is served with"
        screen.line(screen.paint(said, "faint" if agree else "bad"))


def _print_answer(screen: Screen, answer: dict[str, Any], where: str) -> None:
    if answer["parser"] is None:
        screen.line(f"{screen.paint('cannot tell', 'doubtful')}  {where}")
        return
    name = screen.paint(answer["parser"], "good" if answer["installed"] else "doubtful")
    screen.line(f"{name}  {where}")
    if not answer["installed"]:
        screen.line("  no installed parser has this name; see: hermes-core parsers list")


def _print_marks(screen: Screen, template: dict[str, Any]) -> None:
    for evidence in template["evidence"]:
        screen.line(f"  {_mark(screen, evidence)}")
    if template["runners_up"]:
        screen.line("  ruled out, although some marks match:" if template["parser"] else "  closest formats:")
    for other in template["runners_up"]:
        screen.line(f"    {other['name']}: {screen.escape(other['reason'])}")
        for evidence in () if template["parser"] else other["evidence"]:
            screen.line(f"      {_mark(screen, evidence)}")
    if not template["parser"] and not template["runners_up"]:
        screen.line("  it has no known mark of a tool call; perhaps the model cannot call tools")
    if template["has_response_template"]:
        screen.line("  the checkpoint describes its own output; the parser response_template reads that: give it the")
        screen.line("""  folder or its tokenizer_config.json as --options '{"source": "PATH"}'""")


def _mark(screen: Screen, evidence: dict[str, Any]) -> str:
    times = "" if evidence["count"] == 1 else f", {evidence['count']} times"
    return f"{screen.escape(evidence['mark'])}  line {evidence['line']}{times}"
