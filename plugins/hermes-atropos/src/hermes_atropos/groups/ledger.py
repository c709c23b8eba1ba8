"""The ledger: every started rollout has exactly one end, with its reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from hermes_atropos.groups.item_run import ITEM
from hermes_core.contracts.errors import HermesError

_REMEMBERED: Final = 100_000
"""Number of closed lines in memory; the file has all of them."""


class End(StrEnum):
    """How a rollout ended for the trainer: sent, usable but not sent, failed, or cancelled."""

    SENT = "sent"
    REJECTED = "rejected"
    ERRORED = "errored"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One rollout's line; `end` is None while it is open."""

    rollout_id: str
    group_id: str
    split: str = "train"
    end: End | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain JSON values."""
        return asdict(self)


class Ledger:
    """Records the start and end of every rollout, each exactly once; anything else raises an error.

    `write` gets each line when it is closed; in `process` an item's lines wait until the item has ended.
    """

    def __init__(self, write: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        self._open: dict[str, Entry] = {}
        self._closed: dict[str, Entry] = {}
        self._write = write
        self.counts: Counter[End] = Counter()

    def begin(self, rollout_id: str, *, group_id: str, split: str = "train") -> None:
        """Record the start of a rollout."""
        if rollout_id in self._open or rollout_id in self._closed:
            raise HermesError(f"the ledger already has a line for rollout {rollout_id}")
        self._open[rollout_id] = Entry(rollout_id=rollout_id, group_id=group_id, split=split)

    @contextmanager
    def line(self, rollout_id: str, *, group_id: str, split: str = "train") -> Iterator[None]:
        """Open a rollout for a block that closes it; if the block raises, close it with the error."""
        self.begin(rollout_id, group_id=group_id, split=split)
        try:
            yield
        except asyncio.CancelledError as error:
            self.close(rollout_id, End.CANCELLED, str(error) or "cancelled")
            raise
        except Exception as error:
            self.close(rollout_id, End.ERRORED, f"{type(error).__name__}: {error}")
            raise

    def close(self, rollout_id: str, end: End, reason: str = "") -> None:
        """Record the end of a rollout."""
        entry = self._open.get(rollout_id)
        if entry is None:
            known = self._closed.get(rollout_id)
            said = "was never opened" if known is None else f"ended before: {known.end} ({known.reason})"
            raise HermesError(f"the ledger cannot close rollout {rollout_id} as {end}: it {said}")
        closed = Entry(rollout_id=rollout_id, group_id=entry.group_id, split=entry.split, end=end, reason=reason)
        item_run = ITEM.get()
        if item_run is None:
            self.write([closed.to_json()])  # if that raises, the rollout is still open and its group's error closes it
        else:
            item_run.ledger.append(closed.to_json())
        del self._open[rollout_id]
        self._closed[rollout_id] = closed
        if len(self._closed) > _REMEMBERED:
            del self._closed[next(iter(self._closed))]
        self.counts[end] += 1

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write lines of ended rollouts."""
        if self._write is not None:
            for line in lines:
                self._write(line)

    def close_open(self, group_id: str, end: End, reason: str) -> None:
        """Close the open rollouts of a group."""
        for rollout_id in [entry.rollout_id for entry in self._open.values() if entry.group_id == group_id]:
            self.close(rollout_id, end, reason)

    def is_open(self, rollout_id: str) -> bool:
        """Return whether a rollout has started and not ended."""
        return rollout_id in self._open

    @property
    def open(self) -> tuple[Entry, ...]:
        """The rollouts without an end, oldest first."""
        return tuple(self._open.values())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The lines in memory, closed ones first."""
        return (*self._closed.values(), *self._open.values())

    def summary(self) -> dict[str, int]:
        """Count the lines by end, unfinished ones under `open`."""
        return {**{end.value: self.counts[end] for end in End}, "open": len(self._open)}
