"""A run's samples against a log that the other side wrote: the server, or `hermes-core record` in front of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.tokens import Exactness
from hermes_core.tokens.exactness import Exchange, check

_FAULTS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCheck:
    """`total` sums up the rollouts that are handed on; `left_out` counts the other sampled tokens by cause."""

    total: Exactness
    rollouts: int
    left_out: Mapping[str, int]
    faults: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every sampled token of a rollout that is handed on has loss once, and every other has a cause."""
        return not self.faults and self.total.is_exact and "unrecorded" not in self.left_out

    def to_json(self) -> dict[str, Any]:
        """Return shares, counts and faults as plain JSON values."""
        report = self.total.to_json()
        return {
            **report,
            "rollouts": self.rollouts,
            "left_out": dict(self.left_out),
            "faults": list(self.faults),
            "is_exact": self.is_exact,
        }


def check_run(folder: Path, log: Path) -> WireCheck:
    """Compare a run's folder with a wire log; raises `ConfigError` if one of the two is not there."""
    sessions = _sessions(_lines(log))
    total, rollouts = Exactness(), 0
    left_out: Counter[str] = Counter()
    faults: list[str] = []
    for outcome in _lines(folder / "rollouts.jsonl"):
        own = sessions.pop(outcome["rollout_id"], [])
        if not _is_handed_on(outcome):
            left_out[_cause(outcome)] += sum(map(_size, own))
            continue
        rollouts += 1
        left_out["attempts played again"] += sum(map(_size, own[:-1]))
        found = check(own[-1] if own else [], outcome["samples"])
        faults += [f"rollout {outcome['rollout_id']}: {fault}" for fault in found.faults]
        total += found
    left_out["unrecorded"] += sum(_size(session) for rest in sessions.values() for session in rest)
    return WireCheck(total=total, rollouts=rollouts, left_out=+left_out, faults=tuple(faults[:_FAULTS_SHOWN]))


def _sessions(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[list[Exchange]]]:
    """Sort exchanges by rollout and, where a rollout was played several times, by attempt in the order they began."""
    sessions: dict[str, dict[str, list[Exchange]]] = {}
    for line in lines:
        exchange = Exchange.of_line(line)
        if exchange is not None:
            attempt = exchange.request_id.rpartition("-")[0]
            sessions.setdefault(exchange.rollout_id, {}).setdefault(attempt, []).append(exchange)
    return {rollout: list(attempts.values()) for rollout, attempts in sessions.items()}


def _size(session: Iterable[Exchange]) -> int:
    return sum(len(exchange.ids) for exchange in session)


def _is_handed_on(outcome: Mapping[str, Any]) -> bool:
    return outcome.get("disposition") == "score" and outcome.get("reward_status") == "ok"


def _cause(outcome: Mapping[str, Any]) -> str:
    return "masked" if outcome.get("disposition") == "mask" else str(outcome.get("stop_reason"))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ConfigError(f"{path} line {number}: a JSON object was wanted: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="check the path") from error
