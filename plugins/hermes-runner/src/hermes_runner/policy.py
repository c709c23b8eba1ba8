"""Decides by the cause that ended a rollout whether to retry, drop, score or mask it, and records the decision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hermes_core.contracts.errors import Blame
from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome, StopReason
from hermes_runner.config import DEFAULT_POLICY, Action


class Policy:
    """Maps causes to actions: `DEFAULT_POLICY`, overridden by the config.

    - `retry`: run another attempt if the error is retryable, up to `max_attempts`; otherwise like `drop`.
    - `drop`: record the outcome, and continue the group without it.
    - `score`: count the reward as it is.
    - `mask`: record the outcome and count it in the group, but train none of its tokens.

    A suspect rollout gets another attempt whatever its action is: without a second attempt, a model that kills its
    sandbox would get no reward instead of a bad one.
    """

    def __init__(self, overrides: Mapping[str, Action], *, max_attempts: int) -> None:
        self._actions: dict[str, Action] = {**DEFAULT_POLICY, **overrides}
        self._max_attempts = max_attempts

    def wants_retry(self, outcome: RolloutOutcome, *, was_suspect: bool = False) -> bool:
        """Return whether the rollout needs another attempt; `was_suspect` means that an earlier one was suspect."""
        if outcome.suspect and not was_suspect:
            return True
        if self._action(outcome) != "retry" or outcome.attempt >= self._max_attempts:
            return False
        failure = outcome.reward_failure or outcome.failure
        return failure is None or failure.retryable

    def settle(self, outcome: RolloutOutcome) -> RolloutOutcome:
        """Return the outcome with its disposition."""
        action = self._action(outcome)
        if action == "score" and outcome.failure is not None and outcome.reward_status is RewardStatus.SKIPPED:
            action = "drop"  # it failed before there was anything to score
        return dataclasses.replace(outcome, disposition="drop" if action == "retry" else action)

    def _action(self, outcome: RolloutOutcome) -> Action:
        if outcome.reward_status is RewardStatus.ERROR:
            failure = outcome.reward_failure
            lost = failure is not None and failure.blame is Blame.BACKEND
            return self._actions["tool_backend_error" if lost else "verifier_error"]
        if outcome.stop_reason in {StopReason.FINAL_ANSWER, StopReason.SANDBOX_DESTROYED, StopReason.CANCELLED}:
            return "score"
        return self._actions[outcome.stop_reason]
