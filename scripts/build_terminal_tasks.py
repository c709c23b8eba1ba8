"""Writes examples/terminal_tasks.jsonl from scripts/terminal_tasks/*.yaml.

A task in YAML is a task as in JSONL, with short forms: `category` goes to the metadata, a verifier with a `test` stands
for the verifier `pytest` on unittest, with judge.py beside the test, and `@sha256:NAME` is the hash of a placed file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "scripts" / "terminal_tasks"
TARGET = ROOT / "examples" / "terminal_tasks.jsonl"


def build() -> str:
    """Return the content of the JSONL file: one task a line, sorted by id."""
    judge = (SOURCES / "judge.py").read_text(encoding="utf-8")
    tasks = [_task(path, judge) for path in sorted(SOURCES.glob("*.yaml"))]
    return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)


def _task(path: Path, judge: str) -> dict[str, Any]:
    task = yaml.safe_load(path.read_text(encoding="utf-8"))
    category = task.pop("category")
    verifier = task.pop("verifier")
    built = {"id": path.stem, **task, "metadata": {"category": category}}
    built["verifier"] = _with_hashes(_verifier(verifier, judge), task.get("files", {}))
    return built


def _verifier(verifier: dict[str, Any], judge: str) -> dict[str, Any]:
    if "test" not in verifier:
        return verifier
    files = {"test_task.py": verifier["test"], "judge.py": judge}
    options = {"runner": "unittest", "files": files, "required": verifier["required"]}
    return {"name": "pytest", "options": options}


def _with_hashes(value: Any, files: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_hashes(item, files) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_hashes(item, files) for item in value]
    if isinstance(value, str) and value.startswith("@sha256:"):
        return hashlib.sha256(files[value.removeprefix("@sha256:")].encode()).hexdigest()
    return value


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if TARGET.read_text(encoding="utf-8") == build() else f"{TARGET} is not what this script writes")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(build(), encoding="utf-8")
