"""What a reader of tasks must be, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from hermes_core.contracts.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProblem:
    """A task that cannot be used: where it was found (`file:line` or a folder), its id if known, and why."""

    source: str
    task_id: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.source}: {'' if self.task_id is None else f'task {self.task_id!r}: '}{self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTasks:
    """The usable tasks in their order, and the problems with the others."""

    tasks: tuple[Task, ...]
    problems: tuple[TaskProblem, ...] = ()


@runtime_checkable
class TaskSource(Protocol):
    """Reads tasks from a path. An unusable task is a problem and stops no other."""

    def read(self, path: Path) -> LoadedTasks:
        """Read all tasks; raises OSError when the path itself cannot be read."""
        ...
