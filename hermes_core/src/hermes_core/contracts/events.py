"""What plugins can observe: events, one frozen object each so that a new field breaks nobody; outcomes, by a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStarted:
    """A rollout has its plan and begins."""

    rollout_id: str
    task_id: str
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """One tool call of a rollout has finished; `error` is None when it went well."""

    rollout_id: str
    turn: int
    name: str
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutScored:
    """The verification phase is over; `reward` is None unless `status` is "ok"."""

    rollout_id: str
    status: str
    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFinished:
    """One attempt's outcome as plain JSON values; once per attempt, before the run's policy sets its `disposition`."""

    rollout_id: str
    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUpdated:
    """Something about a background process: it was started, its check interval is over, a pattern occurred, it ended.

    `output` is what it has written since the event before, its end where it is long. `reason` is how it ended
    (`exited`, `killed`, `lost`), None before. `notify` is whether the starter asked to be told of the end.
    """

    rollout_id: str
    process_id: str
    session_key: str
    command: str
    moment: Literal["started", "interval", "match", "ended"]
    running: bool
    exit_code: int | None
    reason: str | None
    seconds: float
    output: str
    pattern: str | None = None
    notify: bool = False


@runtime_checkable
class Sink(Protocol):
    """A writer of finished rollouts besides the run's own JSONL; it runs in one worker thread, call after call.

    Every recorded outcome comes once. A call that raises is recorded in the summary, and stops neither run nor JSONL.
    """

    def open(self, folder: str) -> None:
        """Begin; `folder` is the run's output folder, which exists. After a resume the folder has earlier rollouts."""
        ...

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Take one outcome, as it stands in `rollouts.jsonl`."""
        ...

    def close(self) -> None:
        """End; called once, also after an interrupted run. What it raises is a warning of the run."""
        ...
