"""The item of the current task in `process`: the names of its groups and its results so far."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.errors import Blame, HermesError, ModelServerError
from hermes_core.contracts.rollout import RolloutOutcome, StopReason

_HOPELESS: Final = frozenset({Blame.TASK, Blame.USER})
_BEFORE_WRITTEN: Final = "interrupted before its group was written"


@dataclass(slots=True, kw_only=True)
class ItemRun:
    """One item in progress; its results are written together when it has ended.

    The names of its groups and rollouts depend only on the output, the item and `interruptions`. After a kill, nothing
    was written, so the item is repeated under the same names; after an interruption, which has lines in the ledger,
    under new names.
    """

    key: str
    output_id: str
    interruptions: int = 0
    digest: str = ""
    """Digest of the item as it was received."""
    groups: list[bytes] = field(default_factory=list)
    """Lines of the file of groups."""
    ledger: list[Mapping[str, Any]] = field(default_factory=list)
    backlog: list[Any] = field(default_factory=list)
    is_failed: bool = False
    """Whether infrastructure or an author's exception, and not the rollouts, left no result, so a repetition is useful.
    """
    _plans: int = 0
    _has_failures: bool = False
    _has_answer: bool = False
    _no_answer: str = ""

    def next_number(self) -> str:
        """Return the number of the item's next plan, which determines its draw of tools and seeds."""
        number = self.key if self._plans == 0 else f"{self.key}/{self._plans}"
        self._plans += 1
        return number

    def group_id(self, number: str) -> str:
        """Return the id of the group of a plan."""
        return f"gr_{digest(self.output_id, number, self.interruptions)[:12]}"

    def note_outcome(self, outcome: RolloutOutcome) -> None:
        """Record the outcome of one of the item's rollouts."""
        failure = outcome.reward_failure or outcome.failure
        if failure is not None and outcome.reward is None and failure.blame not in _HOPELESS:
            self._has_failures = True
        if outcome.failure is not None and outcome.turns == 0 and outcome.stop_reason is StopReason.MODEL_ERROR:
            self._no_answer = outcome.failure.message
        else:
            self._has_answer = True

    def note_error(self, error: BaseException) -> None:
        """Record an exception of the author's code."""
        if not (isinstance(error, HermesError) and error.blame in _HOPELESS):
            self._has_failures = True
        if isinstance(error, ModelServerError):
            self._no_answer = str(error)

    def note_answer(self) -> None:
        """Record that the model server has answered."""
        self._has_answer = True

    def end_empty(self) -> None:
        """Record that no group was returned: the item failed if a rollout did and nothing else was written."""
        self.is_failed = self._has_failures and not self.groups

    def end_with_error(self, error: BaseException) -> None:
        """Record that the item ended with an exception."""
        self.note_error(error)
        self.is_failed = self._has_failures

    @property
    def no_answer(self) -> str:
        """The model server's error if it never answered, else empty."""
        return "" if self._has_answer else self._no_answer

    def ledger_lines(self, *, is_done: bool) -> list[Mapping[str, Any]]:
        """Return the ledger's lines; an interrupted item has no written group, so nothing was sent."""
        if is_done:
            return self.ledger
        unsent = {"end": "cancelled", "reason": _BEFORE_WRITTEN}
        return [{**line, **unsent} if line["end"] == "sent" else line for line in self.ledger]


ITEM: Final[ContextVar[ItemRun | None]] = ContextVar("hermes_atropos_item", default=None)
"""The item of the current task; None outside of `process`."""


def seed_of(*parts: object) -> int:
    """Return a 31-bit seed that depends only on the parts."""
    return int(digest(*parts)[:8], 16) >> 1


def digest(*parts: object) -> str:
    """Return a hexadecimal digest of all parts, in their order."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
