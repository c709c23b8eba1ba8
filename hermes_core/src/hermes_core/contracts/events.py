"""What plugins can observe: events, each one frozen object so that new fields break no listener, and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStarted:
    """A rollout begins."""

    rollout_id: str
    task_id: str
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """One tool call of a rollout has finished; `error` is None on success."""

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
    """A background process was started, reached its check interval, printed a watched pattern, or ended.

    `output` is what it wrote since the previous event, only the end of it if it is long. `reason` is how it ended
    (`exited`, `killed`, `lost`), None before. `notify` says whether its starter asked for a notice of the end.
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
    """A writer of finished rollouts, beside the run's own JSONL. Its calls run one after another in a worker thread.

    It gets every recorded outcome once. If `open` raises, no run begins; a `write` that raises counts in the summary.
    """

    def open(self, folder: str) -> None:
        """Begin; `folder` is the run's output folder, which exists. A resumed run's folder has earlier rollouts."""

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Write one outcome: this sink's own copy of its line in `rollouts.jsonl`."""

    def close(self) -> None:
        """End; called once, also after an interrupted run. An error raised here becomes a warning."""


@runtime_checkable
class SummarySink(Sink, Protocol):
    """A sink that wants the summary of the run as well."""

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write a copy of `summary.json`: once, after the last outcome and before `close`, also if interrupted.

        An `OutputError` ends the run, with the sink's name, when all sinks are closed. Any other error is a warning.
        """
