"""Builds the summary of a run, `summary.json`, one rollout at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import VerifierTimeoutError
from hermes_core.contracts.rollout import RewardStatus, cause
from hermes_runner.exactness import ExactnessSummary
from hermes_runner.report.failure_groups import FailureGroups

if TYPE_CHECKING:
    from rich.console import Console

FORMAT: Final = 1
PASS_THRESHOLD: Final = 1.0 - 1e-9
TIME_PARTS: Final = ("model", "tool", "sandbox_start", "verifier", "framework")
OTHER_NAMES: Final = "(other names)"
_MAX_NAMES: Final = 500
_MAX_NAME: Final = 100
_MAX_UNPARSED: Final = 5


def pass_at_k(n: int, passed: int, k: int) -> float:
    """Estimate without bias the chance that one of `k` rollouts passes, from `n` of which `passed` did (Chen 2021)."""
    if not 0 <= passed <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k: expected 0 <= passed <= n and 1 <= k <= n, got n={n}, passed={passed}, k={k}")
    return 1.0 - math.comb(n - passed, k) / math.comb(n, k)


def pass_at_ks(n: int) -> list[int]:
    """List the powers of two up to `n`, and `n` itself."""
    powers = [1 << exponent for exponent in range(n.bit_length())]
    return powers if not powers or powers[-1] == n else [*powers, n]


@dataclass(slots=True)
class _Moments:
    """Count, mean, spread and range of a stream of numbers (Welford), without keeping them."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    def average(self) -> float | None:
        return self.mean if self.n else None

    def std(self) -> float | None:
        return math.sqrt(self.squares / self.n) if self.n else None


@dataclass(slots=True)
class _Task:
    category: str | None = None
    rollouts: int = 0
    dropped: int = 0
    passed: int = 0
    tool_errors: int = 0
    reward: _Moments = field(default_factory=_Moments)
    turns: _Moments = field(default_factory=_Moments)
    stop_reasons: Counter[str] = field(default_factory=Counter)

    def pass_rate(self) -> float | None:
        return self.passed / self.reward.n if self.reward.n else None

    def to_json(self, task_id: str) -> dict[str, Any]:
        n = self.reward.n
        return {
            "task_id": task_id,
            "category": self.category,
            "rollouts": self.rollouts,
            "n": n,
            "left_out": self.rollouts - n,
            "dropped": self.dropped,
            "passed": self.passed,
            "mean_reward": self.reward.average(),
            "std_reward": self.reward.std(),
            "pass@1": self.pass_rate(),
            "pass@k": {str(k): pass_at_k(n, self.passed, k) for k in pass_at_ks(n)},
            "mean_turns": self.turns.average(),
            "tool_errors": self.tool_errors,
            "stop_reason": _rank(self.stop_reasons),
        }


class SummaryBuilder:
    """Collects outcomes; memory grows with the number of tasks and of kinds of failure, not of rollouts."""

    def __init__(self) -> None:
        self._counts = {key: Counter[str]() for key in ("stop_reason", "reward_status", "disposition", "split")}
        self._tasks: dict[str, _Task] = {}
        self._engines: Counter[str] = Counter()
        self._failures = FailureGroups()
        self._exactness = ExactnessSummary()
        self._drop_causes: Counter[str] = Counter()
        self._retry_causes: Counter[str] = Counter()
        self._tool_errors: Counter[str] = Counter()
        self._counters: Counter[str] = Counter()
        self._time: dict[str, float] = dict.fromkeys(("total", *TIME_PARTS), 0.0)
        self._parts: dict[str, _Moments] = {}
        self._reward = _Moments()
        self._passed = 0
        self._totals: Counter[str] = Counter()
        self._shared: dict[str, Any] | None = None
        self.unparsed: list[str] = []
        """Up to five replies that look like tool calls and that no parser has read."""

    def add(self, outcome: Mapping[str, Any], *, earlier: bool = False) -> None:
        """Count one rollout; `earlier` ones come from before a resume and do not count for the run's speed."""
        turns, errors = int(outcome.get("turns") or 0), outcome.get("tool_errors") or ()
        task = self._tasks.setdefault(str(outcome.get("task_id")), _Task(category=_category(outcome)))
        task.rollouts += 1
        task.turns.add(turns)
        task.tool_errors += len(errors)
        task.stop_reasons[_text(outcome, "stop_reason")] += 1
        for key, counter in self._counts.items():
            counter[_text(outcome, key)] += 1
        self._totals.update(rollouts=1, turns=turns, tool_errors=len(errors), with_tool_errors=bool(errors))
        self._totals.update(retried=(outcome.get("attempt") or 1) > 1)
        if not earlier:
            self._totals.update(speed_rollouts=1, speed_turns=turns)
        for error in errors:
            _count_name(self._tool_errors, error.get("tool_name"))
        self._exactness.add(outcome)
        self._add_numbers(outcome)
        self._add_reward(outcome, task)
        self._add_failures(outcome)
        self._add_provenance(outcome.get("provenance") or {})

    def _add_numbers(self, outcome: Mapping[str, Any]) -> None:
        for name, value in (outcome.get("counters") or {}).items():
            self._counters[name] += value
        if len(self.unparsed) < _MAX_UNPARSED and (outcome.get("counters") or {}).get("unparsed_replies"):
            content = (outcome.get("messages") or [{}])[-1].get("content")
            self.unparsed += [content] if isinstance(content, str) else []
        timings = outcome.get("timings") or {}
        for name in self._time:
            self._time[name] += timings.get(name) or 0.0

    def _add_reward(self, outcome: Mapping[str, Any], task: _Task) -> None:
        """Count the reward if there is one: dropped rollouts and non-finite rewards are left out, never taken as 0."""
        if outcome.get("disposition") == "drop":
            task.dropped += 1
            self._drop_causes[cause(outcome)] += 1
            return
        reward = _number(outcome.get("reward"))
        if outcome.get("reward_status") != RewardStatus.OK or reward is None:
            return
        passed = reward >= PASS_THRESHOLD
        self._reward.add(reward)
        task.reward.add(reward)
        task.passed += passed
        self._passed += passed
        for name, value in (outcome.get("reward_parts") or {}).items():
            part = _number(value)
            if part is not None and (name in self._parts or len(self._parts) < _MAX_NAMES):
                self._parts.setdefault(name, _Moments()).add(part)

    def _add_failures(self, outcome: Mapping[str, Any]) -> None:
        for phase, key in (("rollout", "failure"), ("reward", "reward_failure")):
            failure = outcome.get(key)
            if failure:
                self._failures.add(phase, failure, str(outcome.get("rollout_id")))
        timed_out = (outcome.get("reward_failure") or {}).get("type") == VerifierTimeoutError.__name__
        self._totals.update(verifier_timeouts=timed_out)

    def _add_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Count the rollout's engine, and keep the provenance that all rollouts have in common."""
        engine = provenance.get("engine")
        if isinstance(engine, Mapping) and engine.get("name"):
            _count_name(self._engines, engine["name"])
        verification = provenance.get("verification")
        self._totals.update(controls=isinstance(verification, Mapping) and "control" in verification)
        if self._shared is None:
            self._shared = dict(provenance)
        elif self._shared != provenance:
            self._shared = _common(self._shared, provenance)

    def add_attempt(self, outcome: Mapping[str, Any]) -> None:
        """Count an attempt that was repeated: its tokens were sampled, but are not trained on."""
        self._retry_causes[cause(outcome)] += 1
        self._exactness.add_attempt(outcome)

    def add_unreadable(self) -> None:
        """Count a line that is not a rollout, so that the summary says it was left out."""
        self._totals["unreadable_lines"] += 1

    def build(self, *, run: Mapping[str, Any], speed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the summary as JSON values.

        `run` is copied; its `wall_seconds` gives the speed and its `group_size` the largest k. A report that is
        rebuilt later passes the `speed` recorded at the time, because the lines do not contain it.
        """
        tasks = {name: self._tasks[name] for name in sorted(self._tasks)}
        return {
            "format": FORMAT,
            "run": dict(run),
            "provenance": self._shared or {},
            "rollouts": self._rollouts_json(),
            "reward": self._reward_json(tasks.values()),
            "pass": self._pass_json(tasks.values(), run),
            "tasks": [task.to_json(name) for name, task in tasks.items()],
            "verification": {"controls": self._totals["controls"], "timeouts": self._totals["verifier_timeouts"]},
            "failures": self._failures.most_common(),
            "more_failures": self._failures.more(),
            "tool_errors": {
                "total": self._totals["tool_errors"],
                "rollouts": self._totals["with_tool_errors"],
                "by_tool": _rank(self._tool_errors),
            },
            "turns": {"total": self._totals["turns"], "mean": self._ratio("turns")},
            "tokens": self._tokens_json(),
            "exactness": self._exactness.to_json(),
            "counters": dict(sorted(self._counters.items())),
            "time": _time_json(self._time),
            "speed": dict(speed) if speed is not None else self._speed_json(run),
            "metrics": self._metrics(tasks),
        }

    def _ratio(self, name: str) -> float | None:
        return self._totals[name] / self._totals["rollouts"] if self._totals["rollouts"] else None

    def _rollouts_json(self) -> dict[str, Any]:
        total = self._totals["rollouts"]
        counts = {key: _rank(counter) for key, counter in self._counts.items()}
        scored = {"total": total, "scored": self._reward.n, "left_out": total - self._reward.n}
        dropped = self._drop_causes.total()
        without = {"dropped": dropped, "no_reward": total - self._reward.n - dropped}
        causes = {"drop_causes": _rank(self._drop_causes), "masked": self._counts["disposition"]["mask"]}
        others = {name: self._totals[name] for name in ("retried", "unreadable_lines")}
        again = {"retries": self._retry_causes.total(), "retry_causes": _rank(self._retry_causes)}
        return {**scored, **without, **causes, **others, **again, **counts, "engine": _rank(self._engines)}

    def _reward_json(self, tasks: Iterable[_Task]) -> dict[str, Any]:
        over = self._reward
        return {
            "mean_over_tasks": _mean(task.reward.average() for task in tasks),
            "mean_over_rollouts": over.average(),
            "std_over_rollouts": over.std(),
            "min": over.low if over.n else None,
            "max": over.high if over.n else None,
            "parts_mean_over_rollouts": {name: part.mean for name, part in sorted(self._parts.items())},
        }

    def _pass_json(self, tasks: Iterable[_Task], run: Mapping[str, Any]) -> dict[str, Any]:
        """Average pass@k over the tasks that have k scored rollouts; `tasks` says how many those are."""
        tasks = list(tasks)
        most = max((task.rollouts for task in tasks), default=0)
        at_k = {}
        for k in pass_at_ks(int(run.get("group_size") or most)):
            values = [pass_at_k(task.reward.n, task.passed, k) for task in tasks if task.reward.n >= k]
            at_k[str(k)] = {"mean_over_tasks": _mean(values), "tasks": len(values)}
        return {
            "threshold": PASS_THRESHOLD,
            "passed_rollouts": self._passed,
            "pass@1_over_tasks": _mean(task.pass_rate() for task in tasks),
            "pass@1_over_rollouts": self._passed / self._reward.n if self._reward.n else None,
            "pass@k": at_k,
        }

    def _tokens_json(self) -> dict[str, Any]:
        prompt, completion = self._counters["prompt_tokens"], self._counters["completion_tokens"]
        rollouts = self._totals["rollouts"]
        per_rollout = (prompt + completion) / rollouts if rollouts else None
        return {"prompt": prompt, "completion": completion, "mean_per_rollout": per_rollout}

    def _speed_json(self, run: Mapping[str, Any]) -> dict[str, Any]:
        wall = run.get("wall_seconds")
        turns, rollouts = self._totals["speed_turns"], self._totals["speed_rollouts"]
        return {
            "wall_seconds": wall,
            "turns": turns,
            "rollouts": rollouts,
            "turns_per_second": turns / wall if wall else None,
            "rollouts_per_second": rollouts / wall if wall else None,
        }

    def _metrics(self, tasks: Mapping[str, _Task]) -> dict[str, Any]:
        """Return metrics under hermes-agent's names; with one rollout per task, the values are hermes-agent's too."""
        categories: dict[str, list[float | None]] = {}
        for task in tasks.values():
            if task.category is not None:
                categories.setdefault(task.category, []).append(task.pass_rate())
        by_category = {f"eval/pass_rate_{name}": _mean(rates) for name, rates in sorted(categories.items())}
        return {
            "eval/pass_rate": _mean(task.pass_rate() for task in tasks.values()),
            **by_category,
            "eval/total_tasks": len(tasks),
            "eval/scored_tasks": sum(task.reward.n > 0 for task in tasks.values()),
            "eval/passed_tasks": sum(task.passed > 0 for task in tasks.values()),
            "train/tool_errors_count": self._totals["tool_errors"],
            "train/tool_parse_errors": self._counters["tool_parse_errors"],
        }


def _time_json(time: Mapping[str, float]) -> dict[str, Any]:
    """Split the rollouts' time; shares are of the parts' sum, so that they add up to 1."""
    seconds = {name: float(time.get(name, 0.0)) for name in TIME_PARTS}
    spent = sum(seconds.values())
    shares = {name: value / spent if spent else None for name, value in seconds.items()}
    return {"rollout_seconds": float(time.get("total", 0.0)), "seconds": seconds, "shares": shares}


def _number(value: object) -> float | None:
    """Return the value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _rank(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def _text(outcome: Mapping[str, Any], key: str) -> str:
    return str(outcome.get(key))


def _count_name(counter: Counter[str], name: object) -> None:
    """Count a name that the model can have invented: long names are cut, and too many share one entry."""
    text = str(name)[:_MAX_NAME]
    counter[text if text in counter or len(counter) < _MAX_NAMES else OTHER_NAMES] += 1


def _category(outcome: Mapping[str, Any]) -> str | None:
    provenance = outcome.get("provenance") or {}
    places = [provenance, provenance.get("metadata"), provenance.get("task")]
    if isinstance(places[2], Mapping):
        places.append(places[2].get("metadata"))
    found = (place.get("category") for place in places if isinstance(place, Mapping))
    return next((str(category) for category in found if category), None)


def _common(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two nested mappings agree on."""
    common: dict[str, Any] = {}
    for key in first.keys() & second.keys():
        one, other = first[key], second[key]
        if one == other:
            common[key] = one
        elif isinstance(one, Mapping) and isinstance(other, Mapping) and (inner := _common(one, other)):
            common[key] = inner
    return dict(sorted(common.items()))


def render_summary(
    summary: Mapping[str, Any], console: Console, *, paths: Sequence[str] | None = None, max_tasks: int = 30
) -> None:
    """Print the summary; see `summary_table`, which imports rich and is therefore imported only now."""
    from hermes_runner.report import summary_table

    summary_table.render_summary(summary, console, paths=paths, max_tasks=max_tasks)
