"""Sums up how exact the samples of a run's rollouts are, and counts the other sampled tokens by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.rollout import RolloutOutcome, is_handed_on, why_not_trained
from hermes_core.contracts.tokens import Exactness

_SHOWN: Final = 20


class InexactRolloutError(HermesError):
    """A run with `require_exact` has a rollout whose samples are not exactly what the model sampled."""

    fatal = True


def require_exact(outcome: RolloutOutcome, *, allow_constrained: bool) -> None:
    """Raise `InexactRolloutError`, naming rollout, turn and token, unless the rollout's samples are exact."""
    fault = outcome.exactness and outcome.exactness.why_not_exact(allow_constrained=allow_constrained)
    if fault:
        raise InexactRolloutError(
            f"rollout {outcome.rollout_id}: expected exact samples, got this fault: {fault}",
            hint="see 'exactness' in its line of rollouts.jsonl; without --require-exact the run continues",
        )


def require_exact_run(summary: Mapping[str, Any], *, allow_constrained: bool) -> None:
    """Raise `InexactRolloutError` if a rollout that an earlier start of the run recorded is not exact."""
    found = summary.get("exactness") or {}
    for rollout in (*found.get("not_exact", ()), *(() if allow_constrained else found.get("under_mask", ()))):
        raise InexactRolloutError(
            f"rollout {rollout['rollout_id']}: expected exact samples, got this fault: {rollout['fault']}",
            hint="an earlier start recorded it in rollouts.jsonl; without --require-exact the run is accepted",
        )


class ExactnessSummary:
    """Sums up the exactness reports of rollouts; without a token protocol there are none."""

    def __init__(self) -> None:
        self._total = Exactness()
        self._rollouts = 0
        self._not_trained: Counter[str] = Counter()
        self._not_exact: list[dict[str, str]] = []
        self._under_mask: list[dict[str, str]] = []

    def add(self, outcome: Mapping[str, Any]) -> None:
        """Count a rollout; if it is not trained on, count its sampled tokens under the cause."""
        report = _report(outcome)
        if report is None:
            return
        if not is_handed_on(outcome):
            self._leave_out(outcome, report)
            return
        self._rollouts += 1
        if fault := report.why_not_exact():
            found = self._not_exact if report.why_not_exact(allow_constrained=True) else self._under_mask
            found += [{"rollout_id": str(outcome.get("rollout_id")), "fault": fault}][: _SHOWN - len(found)]
        self._total += report

    def add_attempt(self, outcome: Mapping[str, Any]) -> None:
        """Count an attempt that was followed by another one."""
        report = _report(outcome)
        if report is not None:
            self._leave_out(outcome, report)

    def _leave_out(self, outcome: Mapping[str, Any], report: Exactness) -> None:
        self._not_trained[why_not_trained(outcome)] += report.sampled

    def to_json(self) -> dict[str, Any] | None:
        """Return the sum, with the sampled tokens that are not trained on by cause; None without any tokens."""
        if not self._rollouts and not self._not_trained:
            return None
        report = self._total.to_json()
        return {
            **report,
            "samples_per_rollout": self._total.samples / self._rollouts if self._rollouts else None,
            "rollouts": self._rollouts,
            "not_trained": {cause: count for cause, count in sorted(self._not_trained.items()) if count},
            "not_exact": self._not_exact,
            "under_mask": self._under_mask,
            "constraints": report["constraints"][:_SHOWN],
            "faults": report["faults"][:_SHOWN],
        }


def _report(outcome: Mapping[str, Any]) -> Exactness | None:
    value = outcome.get("exactness")
    return Exactness.of_json(value) if isinstance(value, Mapping) else None
