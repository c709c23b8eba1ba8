"""Ends a run that comes to nothing, before every remaining rollout fails the same way."""

from __future__ import annotations

from collections import Counter

from hermes_core.contracts.errors import Blame, HermesError
from hermes_core.contracts.rollout import RolloutOutcome


class TooManyFailuresError(HermesError):
    """The first rollouts of a run failed with one cause, and none was good."""

    fatal = True


class FailureWatch:
    """Counts the failures of a run by their kind until a rollout is good; `most` of a kind are too many, 0 never.

    A failure is a rollout that has no reward because something went wrong; a reward of 0 is none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended = 0
        self._has_good = False
        self._kinds: Counter[tuple[Blame, str]] = Counter()
        self._last = ""

    def note(self, outcome: RolloutOutcome) -> None:
        """Count a rollout that has ended."""
        failure = None if outcome.reward is not None else outcome.reward_failure or outcome.failure
        self._ended += 1
        if failure is None:
            self._has_good = True
        elif not self._has_good:
            self._kinds[failure.blame, failure.type] += 1
            self._last = failure.message

    def check(self) -> None:
        """Raise `TooManyFailuresError` if the run is not worth another rollout."""
        if self._has_good or not self._most or not self._kinds:
            return
        (blame, kind), count = self._kinds.most_common(1)[0]
        if count >= self._most:
            raise TooManyFailuresError(
                f"expected rewards, but none of the first {self._ended} rollouts has one; {count} of them ended with "
                f"{kind} (to blame: {blame}), the last failure is: {self._last}",
                hint="mend that and give the same command again with --retry-failed: it continues; --max-failures N "
                "lets more fail, 0 any number",
            )
