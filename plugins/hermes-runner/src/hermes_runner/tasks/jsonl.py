"""Tasks from a JSONL file: one JSON object a line; blank lines are skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hermes_core.contracts.task import LoadedTasks, Task, TaskProblem
from hermes_core.tooling import unique_keys
from hermes_runner.tasks.explain import explain, short_json
from hermes_runner.tasks.record import KNOWN_KEYS, TaskRecord


class JsonlSource:
    """Reads each line separately, so that a broken line does not affect the others."""

    def read(self, path: Path) -> LoadedTasks:
        """Read the file."""
        tasks: list[Task] = []
        problems: list[TaskProblem] = []
        for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if not line.strip():
                continue
            result = parse_line(line, source=f"{path}:{number}", folder=path.parent)
            if isinstance(result, Task):
                tasks.append(result)
            else:
                problems.append(result)
        return LoadedTasks(tasks=tuple(tasks), problems=tuple(problems))


def parse_line(line: bytes, *, source: str, folder: Path) -> Task | TaskProblem:
    """Convert one line to a task or to a problem; no content of a line makes it raise."""
    try:
        value = _parse_json(line)
    except (ValueError, RecursionError) as error:
        return TaskProblem(source=source, task_id=None, message=_json_problem(line, error))
    if not isinstance(value, dict):
        message = f"expected a JSON object, got {short_json(value)}"
        return TaskProblem(source=source, task_id=None, message=message)
    return build_task(value, source=source, folder=folder)


def build_task(value: dict[str, Any], *, source: str, folder: Path) -> Task | TaskProblem:
    """Build a task from a JSON object, or a problem if the object is not valid."""
    claimed = value.get("id")
    task_id = claimed if isinstance(claimed, str) and claimed.isprintable() else None
    try:
        return TaskRecord.model_validate(value).to_task(source=source, folder=folder)
    except ValidationError as error:
        return TaskProblem(source=source, task_id=task_id, message=explain(error, KNOWN_KEYS))
    except ValueError as error:
        return TaskProblem(source=source, task_id=task_id, message=str(error))


def _parse_json(line: bytes) -> Any:
    value = json.loads(line.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_no_constant)
    # JSON allows a lone surrogate, but it is not text: it can be neither written to a file nor sent to a model.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")


def _json_problem(line: bytes, error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        near = error.doc[max(0, error.pos - 20) : error.pos + 20].strip()
        hint = ""
        if line.strip().startswith((b"[", b"{")) and line.strip() in {b"[", b"{"}:
            hint = "; expected a whole task on each line"
        return f"not JSON: {error.msg} at column {error.colno}, near {near!r}{hint}"
    if isinstance(error, UnicodeError):
        return f"not UTF-8 text: {error.reason}" if isinstance(error, UnicodeDecodeError) else f"not text: {error}"
    if isinstance(error, RecursionError):
        return "not readable JSON: nested too deeply"
    return f"not JSON: {error}"
