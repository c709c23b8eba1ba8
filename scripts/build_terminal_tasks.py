"""Writes examples/terminal_tasks.jsonl and attack_tasks.jsonl from scripts/terminal_tasks/ and scripts/attack_tasks/.

A task in YAML is a task as in JSONL, with short forms: `category` and `needs` (programs that a sandbox may lack) go to
the metadata, a verifier with a `test` stands for the verifier `pytest` on unittest, with judge.py beside the test,
`@sha256:NAME` is the hash of a placed file, and cheats `@NAME` are those of shared/NAME.yaml.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SETS = ("terminal_tasks", "attack_tasks")


def target(name: str) -> Path:
    """Return the file that a set of tasks is written to."""
    return ROOT / "examples" / f"{name}.jsonl"


def build(name: str) -> str:
    """Return the content of a set's JSONL file: one task a line, sorted by id."""
    judge = (ROOT / "scripts" / "terminal_tasks" / "judge.py").read_text(encoding="utf-8")
    tasks = [_task(path, judge) for path in sorted((ROOT / "scripts" / name).glob("*.yaml"))]
    return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)


def _task(path: Path, judge: str) -> dict[str, Any]:
    task = yaml.safe_load(path.read_text(encoding="utf-8"))
    metadata = {key: task.pop(key) for key in ("category", "needs") if key in task}
    verifier = task.pop("verifier")
    if isinstance(cheats := task.get("cheats"), str):
        shared = path.parent / "shared" / f"{cheats.removeprefix('@')}.yaml"
        task["cheats"] = yaml.safe_load(shared.read_text(encoding="utf-8"))
    built = {"id": path.stem, **task, "metadata": metadata}
    built["verifier"] = _with_hashes(_verifier(verifier, judge), task.get("files", {}))
    return built


def _verifier(verifier: dict[str, Any], judge: str) -> dict[str, Any]:
    if "test" not in verifier:
        return verifier
    files = {"test_task.py": verifier["test"], "judge.py": judge}
    options = {"runner": "unittest", "files": files, "required": verifier["required"]}
    options |= {key: verifier[key] for key in ("timeout",) if key in verifier}
    return {"name": "pytest", "options": options}


def _with_hashes(value: Any, files: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_hashes(item, files) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_hashes(item, files) for item in value]
    if isinstance(value, str) and value.startswith("@sha256:"):
        return hashlib.sha256(files[value.removeprefix("@sha256:")].encode()).hexdigest()
    return value


def stale() -> list[Path]:
    """Return the files that are not what their sources say."""
    return [target(name) for name in SETS if target(name).read_text(encoding="utf-8") != build(name)]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(", ".join(f"{path} is not what this script writes" for path in stale()) or 0)
    for name in SETS:
        target(name).write_text(build(name), encoding="utf-8")
