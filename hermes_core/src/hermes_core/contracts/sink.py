"""What a sink must be: a writer of finished rollouts besides the run's own JSONL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Sink(Protocol):
    """Receives every recorded outcome once. All methods are synchronous and run in one worker thread, in order.

    A sink that raises is recorded in the summary and does not stop the run; the run's own JSONL is not affected.
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
