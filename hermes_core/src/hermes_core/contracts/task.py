"""A task: what the model is asked, what its sandbox holds, how it is judged; and the contract of task sources."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from hermes_core.specs import ACCESS_LEVELS, Access, Ref, require_inner_path

Message = dict[str, Any]
"""One chat message in OpenAI form: `role`, `content`, and `tool_calls` or `tool_call_id` where they apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """A file to place before the rollout; `path` is absolute or relative to the workspace."""

    path: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tool call of a solution or a cheat."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """A way to look successful without solving the task; must score no more than doing nothing."""

    name: str
    steps: tuple[Step, ...]
    kind: Literal["wrong_output", "tampering", "hard_coded", "other"] = "other"
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precautions:
    """What a task asks of its verification, beyond what its verifier declares.

    `access` raises the verifier's access and cannot lower it. `artifacts` are the paths that a fresh sandbox gets of
    the rollout, None those of the verifier: below the workspace, or absolute in a container of the rollout's own, where
    `/` is the workspace and every change outside the folders of programs. Where the model is root and a task names
    artifacts, all its verifiers get a fresh sandbox; `as_root` does that too, as root, where a backend has users.
    `protected` are files or directories that judging depends on and the model could write: a rollout that changes one,
    or makes one that was not there, scores the lowest score.
    """

    access: Access | None = None
    artifacts: tuple[str, ...] | None = None
    as_root: bool = False
    protected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.access is not None and self.access not in ACCESS_LEVELS:
            raise ValueError(f"access: expected one of {', '.join(ACCESS_LEVELS)}, got {self.access!r}")
        for path in self.artifacts or ():
            if not path.startswith("/"):
                require_inner_path(path)
            elif posixpath.normpath(path) != path or path.startswith("//") or "\0" in path:
                raise ValueError(f"expected an absolute path without '.', '..' and a slash at its end, got {path!r}")
        for path in self.protected:
            require_inner_path(path.removeprefix("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, validated. `messages` begins the conversation (the prompt is a user message).

    `setup` commands run before the rollout; one that fails makes the rollout a task error. `solution` is executed by
    the embedded model `oracle` and by `tasks check`; `answer` is the final message after it. `sandbox` overrides
    fields of the run's `SandboxSpec`, `limits` those of its `RolloutLimits`. `source` says where the task was read.
    """

    id: str
    messages: tuple[Message, ...]
    files: tuple[TaskFile, ...] = ()
    setup: tuple[str, ...] = ()
    verifier: Ref | None = None
    precautions: Precautions = Precautions()
    solution: tuple[Step, ...] | None = None
    answer: str | None = None
    cheats: tuple[Cheat, ...] = ()
    enabled_toolsets: tuple[str, ...] | None = None
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProblem:
    """An unusable task: where it was found (`file:line` or a folder), its id if known, and why."""

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
    """Reads tasks from a path. An unusable task is returned as a problem; the others are still read."""

    def read(self, path: Path) -> LoadedTasks:
        """Read all tasks; raises OSError when the path itself cannot be read."""
