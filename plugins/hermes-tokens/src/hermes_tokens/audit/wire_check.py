"""Check a run's samples against a log of the server or of `hermes-core record` in front of it.

A log holds every prompt in full and is many times larger than the samples, so it is read one rollout at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.rollout import is_handed_on, why_not_trained
from hermes_core.contracts.tokens import Exactness
from hermes_tokens.exactness import Exchange, check_exactness

UNRECORDED: Final = "unrecorded"
_FAULTS_SHOWN: Final = 20
# How many ids at a prompt's end may change when more follows: a header that opens reasoning.
_LOOSE_END: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCheck:
    """Result of a check: `total` sums up the rollouts for training; `left_out` counts other sampled tokens by cause."""

    total: Exactness
    rollouts: int
    left_out: Mapping[str, int]
    faults: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every sampled token of a rollout for training has loss once, and every other token has a cause."""
        return (
            not self.faults and not self.total.why_not_exact(allow_constrained=True) and UNRECORDED not in self.left_out
        )

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
    """Compare a run's folder with a wire log; raise `ConfigError` if one of the two is missing."""
    total, rollouts = Exactness(), 0
    left_out: Counter[str] = Counter()
    faults: list[str] = []
    with _WireLog(log) as wire:
        for outcome in _outcomes(folder / "rollouts.jsonl"):
            exchanges = wire.take(outcome["rollout_id"])
            if not is_handed_on(outcome):
                left_out[why_not_trained(outcome)] += _size(exchanges)
                continue
            rollouts += 1
            *earlier, own = _attempts(exchanges) or [[]]
            left_out["repeated attempts"] += sum(map(_size, earlier))
            found = check_exactness(own, outcome.get("samples") or ())
            left_out["aborted requests"] += _size(own) - found.sampled
            faults += [f"rollout {outcome['rollout_id']}: {fault}" for fault in found.faults]
            total += found
        left_out[UNRECORDED] += wire.rest()
    return WireCheck(total=total, rollouts=rollouts, left_out=+left_out, faults=tuple(faults[:_FAULTS_SHOWN]))


class _WireLog:
    """Index of a log file: the positions of each rollout's lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, list[int]] = {}
        self._sizes: Counter[str] = Counter()
        for place, line in _objects(path):
            exchange = Exchange.of_line(line)
            if exchange is not None:
                self._places.setdefault(exchange.rollout_id, []).append(place)
                self._sizes[exchange.rollout_id] += len(exchange.ids)
        self._file: BinaryIO = path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, rollout_id: str) -> list[Exchange]:
        """Return a rollout's exchanges in order and remove them, so that the rest belongs to no rollout."""
        exchanges = [self._read(place) for place in self._places.pop(rollout_id, ())]
        del self._sizes[rollout_id]
        return [exchange for exchange in exchanges if exchange is not None]

    def rest(self) -> int:
        """Return the number of sampled tokens that have not been taken."""
        return self._sizes.total()

    def _read(self, place: int) -> Exchange | None:
        self._file.seek(place)
        return Exchange.of_line(json.loads(self._file.readline()))


def _attempts(exchanges: Iterable[Exchange]) -> list[list[Exchange]]:
    """Group a rollout's exchanges by attempt, in the order they started.

    An attempt has one session, and its request ids start with the session's name. A session that continues an earlier
    session's prompt is not a new attempt, even under another name: the tokens of both must be in the samples.
    """
    sessions: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        sessions.setdefault(exchange.request_id.rpartition("-")[0], []).append(exchange)
    attempts: list[list[Exchange]] = []
    for session in sessions.values():
        if attempts and _goes_on(attempts[-1][0].prompt_ids, session[0].prompt_ids):
            attempts[-1] += session
        else:
            attempts.append(session)
    return attempts


def _goes_on(opening: Sequence[int], prompt: Sequence[int]) -> bool:
    shared = max(1, len(opening) - _LOOSE_END)
    return len(prompt) > len(opening) and prompt[:shared] == opening[:shared]


def _size(session: Iterable[Exchange]) -> int:
    return sum(len(exchange.ids) for exchange in session)


def _outcomes(path: Path) -> Iterator[dict[str, Any]]:
    for place, outcome in _objects(path):
        if not isinstance(outcome.get("rollout_id"), str):
            raise ConfigError(
                f"expected a rollout at byte {place} of {path}, got none", hint="give the folder of a run"
            )
        yield outcome


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line with its position in the file."""
    place = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield place, _object(path, number, line)
                place += len(line)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="check the path") from error


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigError(
            f"expected a JSON object in {path} line {number}, got: {error}",
            hint="remove the line if a killed process left it unfinished",
        ) from error
    if not isinstance(value, dict):
        raise ConfigError(f"expected a JSON object in {path} line {number}, got {type(value).__name__}")
    return value
