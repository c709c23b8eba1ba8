"""The sink `events`: a timeline of what happens during each rollout, in `events.jsonl`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from pydantic import BaseModel, ConfigDict, Field

from hermes_core import hookimpl
from hermes_core.contracts.events import ProcessUpdated, RolloutFinished, RolloutScored, RolloutStarted, ToolCalled
from hermes_core.contracts.model import encode
from hermes_runner.file_writing import JsonlFile

_FILE: Final = "events.jsonl"
_LONGEST: Final = 500
"""Characters that are kept of a text from the model or a tool."""
_OUTCOME: Final = ("attempt", "stop_reason", "reward_status", "reward", "turns")


class EventsOptions(BaseModel):
    """Options of the sink `events`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_events: int = Field(2000, ge=1)
    """Tool calls and process updates that are written for one rollout; further ones are only counted."""


@dataclass(slots=True)
class _Timeline:
    """The events of one rollout that are not written yet."""

    lines: list[Mapping[str, Any]] = field(default_factory=list)
    many: int = 0
    """Tool calls and process updates so far."""


@final
class EventsSink:
    """Keeps the events of a rollout until its outcome: hooks are called on the event loop and must not write."""

    Options = EventsOptions

    def __init__(self, options: EventsOptions) -> None:
        self._max_events = options.max_events
        self._timelines: dict[str, _Timeline] = {}
        self._lock = threading.Lock()  # between the event loop, which adds events, and the sink's thread, which writes
        self._begun = time.monotonic()

    def open(self, folder: str) -> None:
        """Open the file and write the line with the time of day at which `at` is 0; a resumed run adds another."""
        self._file = JsonlFile(Path(folder, _FILE))
        self._begun = time.monotonic()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._file.append({"at": 0.0, "event": "run", "time": now})

    def write(self, outcome: Mapping[str, Any]) -> None:
        """Write all events of the outcome's rollout."""
        self._write(str(outcome["rollout_id"]))

    def close(self) -> None:
        """Write the events of rollouts that have no outcome, such as those in flight when a run is interrupted."""
        try:
            for rollout_id in list(self._timelines):
                self._write(rollout_id)
        finally:
            self._file.close()

    @hookimpl
    def hermes_rollout_started(self, event: RolloutStarted) -> None:
        """Note that an attempt has begun."""
        self._keep(event.rollout_id, "started", {"task_id": event.task_id, "group_id": event.group_id})

    @hookimpl
    def hermes_tool_called(self, event: ToolCalled) -> None:
        """Note a tool call; `at` is the time of its end."""
        error = None if event.error is None else event.error[:_LONGEST]
        fields = {"turn": event.turn, "name": event.name[:_LONGEST], "seconds": event.seconds, "error": error}
        self._keep(event.rollout_id, "tool", fields, is_one_of_many=True)

    @hookimpl
    def hermes_process_updated(self, event: ProcessUpdated) -> None:
        """Note an update of a background process, with the size of its output instead of the output."""
        fields = {
            "process_id": event.process_id,
            "moment": event.moment,
            "command": event.command[:_LONGEST],
            "seconds": event.seconds,
            "exit_code": event.exit_code,
            "reason": event.reason,
            "pattern": None if event.pattern is None else event.pattern[:_LONGEST],
            "output_chars": len(event.output),
        }
        self._keep(event.rollout_id, "process", fields, is_one_of_many=True)

    @hookimpl
    def hermes_rollout_scored(self, event: RolloutScored) -> None:
        """Note the score."""
        fields = {"status": event.status, "reward": event.reward, "parts": dict(event.parts)}
        self._keep(event.rollout_id, "scored", fields)

    @hookimpl
    def hermes_rollout_finished(self, event: RolloutFinished) -> None:
        """Note how an attempt ended; its messages are in `rollouts.jsonl` or `attempts.jsonl`."""
        self._keep(event.rollout_id, "finished", {name: event.outcome.get(name) for name in _OUTCOME})

    def _keep(self, rollout_id: str, name: str, fields: Mapping[str, Any], *, is_one_of_many: bool = False) -> None:
        at = round(time.monotonic() - self._begun, 6)
        with self._lock:
            timeline = self._timelines.setdefault(rollout_id, _Timeline())
            timeline.many += is_one_of_many
            if not is_one_of_many or timeline.many <= self._max_events:
                timeline.lines.append({"at": at, "rollout_id": rollout_id, "event": name, **fields})

    def _write(self, rollout_id: str) -> None:
        with self._lock:
            timeline = self._timelines.pop(rollout_id, None)
        if timeline is None:
            return
        lines = timeline.lines
        if (left_out := timeline.many - self._max_events) > 0:
            lines.append({"at": lines[-1]["at"], "rollout_id": rollout_id, "event": "left_out", "count": left_out})
        self._file.append_line(b"".join(_encode_line(line) + b"\n" for line in lines))


def _encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode a line; fields that are not JSON are left out, and `left_out` names them."""
    try:
        return encode(line)
    except (TypeError, ValueError, RecursionError):
        kept = {name: value for name, value in line.items() if _is_json(value)}
        return encode({**kept, "left_out": [name for name in line if name not in kept]})


def _is_json(value: object) -> bool:
    try:
        encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
