"""The report on a trajectory, and the check of samples against a log that the other side wrote.

The report is what the recorder believes. The check does not trust it: it takes the exchanges as a server or a recording
proxy saw them, and looks for every sampled id in the samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes_core.contracts.tokens import IGNORED, Exactness, TrainingSample
from hermes_core.tokens.trajectory import Trajectory

_FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the other side saw it: the prompt's ids, the sampled ids, their logprobs."""

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float | None] = ()
    rollout_id: str = ""
    request_id: str = ""

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Exchange | None:
        """Read a line of a wire log; None for a request that brought no ids."""
        if not line.get("ids"):
            return None
        return cls(
            prompt_ids=line.get("prompt_ids") or (),
            ids=line["ids"],
            logprobs=line.get("logprobs") or (),
            rollout_id=line.get("rollout_id") or "",
            request_id=line.get("request_id") or "",
        )


def report(trajectory: Trajectory, samples: Sequence[TrainingSample]) -> Exactness:
    """Describe a trajectory and the samples that were made of it."""
    sampled = list(trajectory.sampled())
    # Whole lists at a time: a rollout has tens of thousands of tokens, and the event loop waits.
    trained = sum(len(sample.masks) - sample.masks.count(IGNORED) for sample in samples)
    count = sum(len(node.ids) for node in sampled)
    turns = {node.turn for node in sampled}
    faults = [] if trained == count else [f"{count - trained} of {count} sampled tokens have no loss"]
    faults += [
        f"turn {node.turn}: sampled token {place} (id {node.ids[place]}) has no logprob"
        for node in sampled
        if None in node.logprobs
        for place, logprob in enumerate(node.logprobs)
        if logprob is None
    ][:_FAULTS_SHOWN]
    return Exactness(
        sampled=count,
        trained=trained,
        turns=len(turns),
        turns_with_loss=len(turns) if trained == count else 0,
        continued=max(0, trajectory.turns - 1),
        prefix_exact=max(0, trajectory.turns - 1 - trajectory.breaks.total()),
        samples=len(samples),
        with_logprob=sum(len(node.logprobs) - node.logprobs.count(None) for node in sampled),
        break_reasons={str(reason): count for reason, count in trajectory.breaks.items()},
        faults=tuple(faults),
    )


def check(exchanges: Iterable[Exchange], samples: Sequence[Mapping[str, Any]]) -> Exactness:
    """Look for every sampled id of one rollout in its samples (as `rollouts.jsonl` holds them), with loss just once."""
    exchanges = list(exchanges)
    found = _Places(samples)
    total = Exactness(samples=len(samples))
    before: list[int] | None = None
    wanted = Counter(place for exchange in exchanges for place in _sampled_places(exchange))
    for turn, exchange in enumerate(exchanges):
        prompt = list(exchange.prompt_ids)
        total += found.turn(turn, exchange, wanted)
        if before is not None:
            total = replace(
                total,
                continued=total.continued + 1,
                prefix_exact=total.prefix_exact + (prompt[: len(before)] == before),
            )
        before = prompt + list(exchange.ids)
    return replace(total, faults=(*total.faults, *found.made_up(wanted)))


_Place = tuple[int, int]
"""A token and a hash of all before it: sampled twice after the same prompt, a token is due two losses."""


def _places(tokens: Iterable[int]) -> Iterator[_Place]:
    before = 0
    for token in tokens:
        yield before, token
        before = hash((before, token))


def _sampled_places(exchange: Exchange) -> list[_Place]:
    return list(_places([*exchange.prompt_ids, *exchange.ids]))[len(exchange.prompt_ids) :]


class _Places:
    """Where the samples have loss, and with which logprob."""

    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self._losses: dict[_Place, list[float | None]] = {}
        self._where: dict[_Place, str] = {}
        self._left: Counter[_Place] = Counter()
        for number, sample in enumerate(samples):
            for at, place in enumerate(_places(sample["tokens"])):
                if sample["masks"][at] == IGNORED:
                    continue
                self._losses.setdefault(place, []).append(sample["logprobs"][at])
                self._where[place] = f"sample {number}: token {at} (id {sample['tokens'][at]})"
                self._left[place] += 1

    def turn(self, number: int, exchange: Exchange, wanted: Counter[_Place]) -> Exactness:
        """Compare one exchange; `wanted` counts how often each place was sampled in all of them."""
        trained, faults = 0, []
        for index, place in enumerate(_sampled_places(exchange)):
            trained += self._take(place)
            count = len(self._losses.get(place, ())) - wanted[place] + 1
            if count != 1:
                faults.append(f"turn {number}: sampled token {index} (id {place[1]}) has loss {count} times")
            elif (wrong := self._wrong_logprob(place, exchange, index)) is not None:
                faults.append(f"turn {number}: sampled token {index} {wrong}")
        return Exactness(
            sampled=len(exchange.ids),
            trained=trained,
            turns=1,
            turns_with_loss=int(trained == len(exchange.ids)),
            with_logprob=sum(logprob is not None for logprob in exchange.logprobs),
            faults=tuple(faults[:_FAULTS_SHOWN]),
        )

    def _take(self, place: _Place) -> bool:
        if not self._left[place]:
            return False
        self._left[place] -= 1
        return True

    def _wrong_logprob(self, place: _Place, exchange: Exchange, index: int) -> str | None:
        if index >= len(exchange.logprobs):
            return None
        sent, kept = exchange.logprobs[index], self._losses[place]
        if any(_same(logprob, sent) for logprob in kept):
            return None
        return f"has logprob {kept[0]!r}, {sent!r} was sent"

    def made_up(self, wanted: Counter[_Place]) -> tuple[str, ...]:
        """Name tokens with loss that nobody sampled."""
        lines = [f"{name} has loss and was never sampled" for place, name in self._where.items() if not wanted[place]]
        return tuple(lines[:_FAULTS_SHOWN])


def _same(kept: float | None, sent: float | None) -> bool:
    if kept is None or sent is None:
        return kept is sent
    return math.isclose(kept, sent, rel_tol=1e-9, abs_tol=1e-12)
