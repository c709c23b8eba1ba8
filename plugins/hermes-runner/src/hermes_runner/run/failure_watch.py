"""Stops a run whose rollouts all fail with one cause, before the remaining ones fail too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.errors import Blame, HermesError
from hermes_core.contracts.rollout import Failure, RolloutOutcome

_OF_A_TASK: Final = frozenset({Blame.TASK, Blame.VERIFIER, Blame.BACKEND, Blame.FRAMEWORK})
"""What can fail for one task alone, such as an image that needs more memory than the sandbox has."""


class TooManyFailuresError(HermesError):
    """The first rollouts of a run failed with one cause, and none was good."""

    fatal = True


@dataclass(slots=True)
class _Kind:
    """Failures of one type and blame; `last` is the latest of them."""

    last: Failure
    count: int = 0
    tasks: set[str] = field(default_factory=set)


class FailureWatch:
    """Counts the failures of a run by kind until a rollout succeeds; `most` of a kind stop the run, 0 never does.

    A failure is a rollout that has no reward because something went wrong; a reward of 0 is not a failure. Unless the
    model or its server is to blame, the failures must come from two tasks if the run has several `tasks`, so that one
    task cannot stop the others.
    """

    def __init__(self, most: int, *, tasks: int = 2) -> None:
        self._most = most
        self._has_others = tasks > 1
        self._ended = 0
        self._has_good = False
        self._kinds: dict[tuple[Blame, str], _Kind] = {}

    def recall(self, outcome: Mapping[str, Any]) -> None:
        """Note a rollout that was recorded before a resume."""
        has_failed = outcome.get("reward_failure") or outcome.get("failure")
        self._has_good = self._has_good or outcome.get("reward") is not None or not has_failed

    def note(self, outcome: RolloutOutcome) -> None:
        """Count a rollout that has ended."""
        failure = None if outcome.reward is not None else outcome.reward_failure or outcome.failure
        self._ended += 1
        if failure is None:
            self._has_good = True
        elif not self._has_good:
            kind = self._kinds.setdefault((failure.blame, failure.type), _Kind(failure))
            kind.last = failure
            kind.count += 1
            kind.tasks.add(outcome.task_id)

    def check(self) -> None:
        """Raise `TooManyFailuresError` if one kind has too many failures and no rollout has succeeded."""
        if self._has_good or not self._most:
            return
        for kind in self._kinds.values():
            is_common = not self._has_others or kind.last.blame not in _OF_A_TASK or len(kind.tasks) > 1
            if kind.count >= self._most and is_common:
                raise TooManyFailuresError(
                    f"expected rewards, got none in the first {self._ended} rollouts; {kind.count} of them ended with "
                    f"{kind.last.type} (to blame: {kind.last.blame}), most recently: {kind.last.message}",
                    hint="fix the cause, then run the same command again with --retry-failed to continue; "
                    "--max-failures N allows more failures, 0 any number",
                )
