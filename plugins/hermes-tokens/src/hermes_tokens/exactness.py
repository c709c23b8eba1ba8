"""Report on a trajectory, and check samples against a log from the server's side.

The report is the recorder's own account. The check does not trust it: it takes the exchanges as a server or a recording
proxy saw them, and looks for every sampled id in the samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from hermes_core.contracts.tokens import IGNORED, Exactness, TrainingSample
from hermes_tokens.constraints import constraints
from hermes_tokens.trajectory import TokenNode, Trajectory

CHECK_PREFIX: Final = "check-"
"""Prefix of request ids that belong to no rollout: a model's check samples one token."""
_FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the server saw it: the prompt's ids, the sampled ids, their logprobs.

    `aborted`: the client disconnected or aborted, so the ids may not have arrived. `constraints` names the request's
    parameters that masked sampling; it is empty if the log has no parameters.
    """

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float | None] = ()
    rollout_id: str = ""
    request_id: str = ""
    aborted: bool = False
    constraints: tuple[str, ...] = ()

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Exchange | None:
        """Read a line of a wire log; return None for a request without sampled ids or of a model's check."""
        if not line.get("ids") or _is_probe(line):
            return None
        return cls(
            prompt_ids=line.get("prompt_ids") or (),
            ids=line["ids"],
            logprobs=line.get("logprobs") or (),
            rollout_id=line.get("rollout_id") or "",
            request_id=line.get("request_id") or "",
            aborted=bool(line.get("aborted")),
            constraints=constraints(line.get("sampling") or {}, logprobs_mode=None),
        )


def _is_probe(line: Mapping[str, Any]) -> bool:
    is_named = str(line.get("request_id") or "").startswith(CHECK_PREFIX)
    return is_named and not line.get("rollout_id") and len(line["ids"]) == 1


def report(trajectory: Trajectory, samples: Sequence[TrainingSample]) -> Exactness:
    """Report on a trajectory and the samples made from it."""
    sampled = list(trajectory.sampled_nodes())
    # Whole lists at a time: a rollout has tens of thousands of tokens, and this blocks the event loop.
    trained = sum(len(sample.masks) - sample.masks.count(IGNORED) for sample in samples)
    count = sum(len(node.ids) for node in sampled)
    turns = {node.turn for node in sampled}
    # A conversation that the caller edited is another one, so it continues nothing.
    continued = max(0, trajectory.turns - 1 - trajectory.breaks["history_edited"])
    broken = trajectory.breaks.total() - trajectory.breaks["history_edited"]
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
        continued=continued,
        prefix_exact=max(0, continued - broken),
        samples=len(samples),
        with_logprob=sum(len(node.logprobs) - node.logprobs.count(None) for node in sampled),
        constrained=sum(len(node.ids) for node in sampled if node.constraints),
        constraints=tuple(_constrained_turns(sampled)[:_FAULTS_SHOWN]),
        break_reasons={str(reason): count for reason, count in trajectory.breaks.items()},
        faults=tuple(faults),
    )


def _constrained_turns(sampled: Iterable[TokenNode]) -> list[str]:
    """Name each turn with constrained tokens and the parameters."""
    counts: dict[tuple[int | None, tuple[str, ...]], int] = {}
    for node in sampled:
        if node.constraints:
            key = (node.turn, node.constraints)
            counts[key] = counts.get(key, 0) + len(node.ids)
    return [f"turn {turn}: {count} sampled tokens under {', '.join(names)}" for (turn, names), count in counts.items()]


def check_exactness(exchanges: Iterable[Exchange], samples: Sequence[Mapping[str, Any]]) -> Exactness:
    """Look for every sampled id of one rollout in its samples (from `rollouts.jsonl`), with loss exactly once.

    An aborted exchange without any token in the samples is ignored, because its client never read it.
    """
    malformed = [fault for number, sample in enumerate(samples) for fault in _sample_faults(number, sample)]
    found = _Places([] if malformed else samples)
    exchanges = [exchange for exchange in exchanges if not exchange.aborted or found.hold(exchange)]
    total = Exactness(samples=len(samples))
    # A branch that starts with a caller's edit continues nothing.
    edited = sum(str(sample.get("reason")).startswith("history_edited") for sample in samples)
    ends = _Ends()
    wanted = Counter(place for exchange in exchanges for place in _sampled_places(exchange))
    for turn, exchange in enumerate(exchanges):
        total += found.turn(turn, exchange, wanted)
        goes_on = ends.go_on(exchange)
        if turn and not goes_on and edited:
            edited -= 1
        elif turn:
            total = replace(total, continued=total.continued + 1, prefix_exact=total.prefix_exact + goes_on)
    return replace(total, faults=(*malformed, *total.faults, *found.find_invented(wanted)))


def _sample_faults(number: int, sample: Mapping[str, Any]) -> Iterator[str]:
    """Yield faults that make a sample unusable, regardless of what was sampled."""
    tokens, masks, logprobs = (sample.get(key) for key in ("tokens", "masks", "logprobs"))
    if not (isinstance(tokens, list) and isinstance(masks, list) and isinstance(logprobs, list)):
        yield f"sample {number}: tokens, masks and logprobs must be lists"
    elif not len(tokens) == len(masks) == len(logprobs):
        sizes = f"{len(tokens)} tokens, {len(masks)} masks, {len(logprobs)} logprobs"
        yield f"sample {number}: expected three lists of one length, got {sizes}"
    elif not set(map(type, tokens)) | set(map(type, masks)) <= {int}:
        yield f"sample {number}: tokens and masks must be whole numbers"
    else:
        wrong = (at for at, mask in enumerate(masks) if mask not in {IGNORED, tokens[at]})
        for at in islice(wrong, _FAULTS_SHOWN):
            yield f"sample {number}: token {at} (id {tokens[at]}) has the mask {masks[at]}"
        if masks and masks[-1] == IGNORED:
            yield f"sample {number}: its last token has no loss, so the tokens at its end train nothing"


_Place = tuple[int, int]
"""A token and a hash of all ids before it: a token sampled twice after the same prompt needs two losses."""


def _places(tokens: Iterable[int]) -> Iterator[_Place]:
    before = 0
    for token in tokens:
        yield before, token
        before = hash((before, token))


def _sampled_places(exchange: Exchange) -> list[_Place]:
    return list(_places([*exchange.prompt_ids, *exchange.ids]))[len(exchange.prompt_ids) :]


class _Ends:
    """The ends of a rollout's branches so far, by a hash of all ids of each."""

    def __init__(self) -> None:
        self._ends: set[int] = set()

    def go_on(self, exchange: Exchange) -> bool:
        """Add an exchange and return whether its prompt continues a branch; that branch's old end is removed."""
        hashes = [before for before, _ in _places([*exchange.prompt_ids, *exchange.ids, 0])]
        found = self._ends.intersection(hashes[: len(exchange.prompt_ids) + 1])
        self._ends = self._ends - found | {hashes[-1]}
        return bool(found)


class _Places:
    """Positions where the samples have loss, with their logprobs, and positions with a logprob but no loss."""

    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self._losses: dict[_Place, list[float | None]] = {}
        self._unmatched: dict[_Place, list[float | None]] = {}
        self._where: dict[_Place, str] = {}
        self._marked: set[_Place] = set()
        self._left: Counter[_Place] = Counter()
        self._claims: list[tuple[_Place, float | None, str]] = []
        self._sent: dict[_Place, list[float | None]] = {}
        for number, sample in enumerate(samples):
            for at, place in enumerate(_places(sample["tokens"])):
                name, logprob = f"sample {number}: token {at} (id {place[1]})", sample["logprobs"][at]
                if sample["masks"][at] != IGNORED:
                    self._losses.setdefault(place, []).append(logprob)
                    self._where[place] = name
                    if sample.get("constrained"):
                        self._marked.add(place)
                    self._left[place] += 1
                elif logprob is not None:
                    self._claims.append((place, logprob, name))

    def hold(self, exchange: Exchange) -> bool:
        """Return whether any of an exchange's tokens has loss."""
        return any(place in self._losses for place in _sampled_places(exchange))

    def turn(self, number: int, exchange: Exchange, wanted: Counter[_Place]) -> Exactness:
        """Compare one exchange; `wanted` counts how often each position was sampled in all exchanges."""
        trained, faults = 0, []
        for index, place in enumerate(_sampled_places(exchange)):
            trained += self._take(place)
            self._sent.setdefault(place, []).append(_logprob(exchange, index))
            count = len(self._losses.get(place, ())) - wanted[place] + 1
            if count != 1:
                faults.append(f"turn {number}: sampled token {index} (id {place[1]}) has loss {count} times")
            elif (wrong := self._wrong_logprob(place, exchange, index)) is not None:
                faults.append(f"turn {number}: sampled token {index} {wrong}")
        if exchange.constraints and not self._marked.issuperset(
            p for p in _sampled_places(exchange) if p in self._losses
        ):
            names = ", ".join(exchange.constraints)
            faults.insert(0, f"turn {number}: drawn under {names}, but its sample is not marked as constrained")
        return Exactness(
            sampled=len(exchange.ids),
            trained=trained,
            constrained=len(exchange.ids) if exchange.constraints else 0,
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
        """Match one sent logprob with one recorded logprob, and use up the latter."""
        if not exchange.logprobs:  # a log without logprobs proves nothing; missing ones are counted elsewhere
            return None
        sent = _logprob(exchange, index)
        kept = self._unmatched.setdefault(place, list(self._losses[place]))
        match = next((at for at, logprob in enumerate(kept) if _same(logprob, sent)), None)
        if match is None:
            return f"has logprob {kept[0] if kept else None!r}, but {sent!r} was sent"
        del kept[match]
        return None

    def find_invented(self, wanted: Counter[_Place]) -> tuple[str, ...]:
        """Name tokens with loss that were never sampled, and logprobs that were never sent."""
        lines = [f"{name} has loss and was never sampled" for place, name in self._where.items() if not wanted[place]]
        lines += [
            f"{name} has no loss and the logprob {logprob!r}, which was never sent"
            for place, logprob, name in self._claims
            if not any(_same(logprob, sent) for sent in self._sent.get(place, ()))
        ]
        return tuple(lines[:_FAULTS_SHOWN])


def _logprob(exchange: Exchange, index: int) -> float | None:
    return exchange.logprobs[index] if index < len(exchange.logprobs) else None


def _same(kept: float | None, sent: float | None) -> bool:
    if kept is None or sent is None:
        return kept is sent
    return math.isclose(kept, sent, rel_tol=1e-9, abs_tol=1e-12)
