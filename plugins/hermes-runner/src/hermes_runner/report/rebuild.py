"""Rebuilds `summary.json` and `report.html` from `rollouts.jsonl`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hermes_core.contracts.errors import OutputError
from hermes_runner.file_writing import replace_file
from hermes_runner.output import without_samples
from hermes_runner.report.summary import SummaryBuilder
from hermes_runner.report.writer import write_report


def rebuild(directory: Path) -> dict[str, Any]:
    """Rewrite both files and return the summary.

    The lines do not contain the run's facts and its speed; these are kept from the existing summary.
    """
    rollouts = directory / "rollouts.jsonl"
    if not rollouts.is_file():
        raise OutputError(
            f"expected a folder with rollouts.jsonl, got {directory}, which has none",
            hint="name the output folder of a run, such as: hermes-core report runs/latest",
        )
    old = _old_summary(directory / "summary.json")
    with rollouts.open("rb") as lines:
        builder = _read(lines)
    _read_attempts(directory / "attempts.jsonl", builder)
    summary = builder.build(run=old.get("run") or {}, speed=old.get("speed") or {})
    write_summary(directory / "summary.json", summary)
    with rollouts.open("rb") as lines:
        write_report(directory / "report.html", summary, lines)
    return summary


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Replace `summary.json` as a whole, or leave it as it is."""
    text = json.dumps(summary, ensure_ascii=False, indent=2, default=str)
    try:
        with replace_file(path) as out:
            out.write(text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError as error:
        raise OutputError(
            f"{path} could not be written: {error}.", hint="make room or choose another folder"
        ) from error


def _read(lines: Iterable[bytes]) -> SummaryBuilder:
    builder = SummaryBuilder()
    for line in lines:
        if not line.strip():
            continue
        try:
            outcome = json.loads(without_samples(line))
        except (ValueError, RecursionError):
            builder.add_unreadable()
            continue
        if isinstance(outcome, dict):
            builder.add(outcome)
        else:
            builder.add_unreadable()
    return builder


def _read_attempts(path: Path, builder: SummaryBuilder) -> None:
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError, AttributeError):
                builder.add_attempt(json.loads(without_samples(line)))


def _old_summary(path: Path) -> Mapping[str, Any]:
    """Return the existing summary, or an empty mapping if there is no readable one."""
    try:
        old = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return old if isinstance(old, dict) else {}
