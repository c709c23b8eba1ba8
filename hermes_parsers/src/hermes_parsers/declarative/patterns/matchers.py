"""Match patterns in one pass: every step is final, so there is no backtracking.

A regular expression backtracks when the text after a choice does not match. Here a pattern is accepted only if
backtracking could not help: what may follow a repeat differs from what is repeated, the alternatives differ from each
other, or nothing that can fail follows. A repeat before a literal ends at the literal's first occurrence;
`transformers` continues past it if what follows the literal does not match, which is the only difference.

Search results are remembered, so any number of attempts on one text stays linear.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Final

from hermes_parsers.declarative.patterns.first_sets import END, Head, Heads, heads, holds, meet
from hermes_parsers.declarative.patterns.syntax import (
    Choice,
    Edge,
    Group,
    Literal,
    Node,
    PatternError,
    Repeat,
    Run,
    Sequence,
)

FAIL: Final = -1
WAIT: Final = -2
"""What a step returns in place of a position: no match; or more text is needed to decide."""


class Subject:
    """A text to match, which may still grow, with the captures of the match and the remembered searches."""

    __slots__ = ("_literals", "_runs", "captures", "final", "text")

    def __init__(self, text: str, *, final: bool) -> None:
        self.text = text
        self.final = final
        self.captures: dict[str, tuple[int, int]] = {}
        self._literals: dict[str, tuple[int, int]] = {}
        self._runs: dict[str, tuple[int, int]] = {}

    def find(self, literal: str, at: int, limit: int | None) -> int:
        """Return the next occurrence of a literal within `limit`, or the text's length."""
        if limit is not None:
            place = self.text.find(literal, at, at + limit + len(literal))
            return len(self.text) if place < 0 else place
        since, place = self._literals.get(literal, (1, 0))
        if not since <= at <= place:
            place = self.text.find(literal, at)
            place = len(self.text) if place < 0 else place
            self._literals[literal] = (at, place)
        return place

    def run(self, chars: str, match: Callable[[str, int, int], re.Match[str] | None], at: int, stop: int) -> int:
        """Return where the run of a class's characters that begins here ends, at most `stop`."""
        start, end = self._runs.get(chars, (1, 0))
        if not start <= at <= end:
            start = end = at
        if end < stop:
            found = match(self.text, end, stop)
            end = end if found is None else found.end()
        self._runs[chars] = (start, end)
        return min(end, stop)

    def capture(self, name: str) -> str:
        """Return what was captured under a name, "" if that part of the pattern did not match."""
        start, end = self.captures.get(name, (0, 0))
        return self.text[start:end]


Step = Callable[[Subject, int], int]
"""Takes a position and returns the next one, `FAIL` or `WAIT`."""


def compile_pattern(sequence: Sequence, *, limit: int | None = None) -> Step:
    """Build one step of a pattern; no repeat in it takes more than `limit` characters.

    Raises:
        PatternError: It could need backtracking.
    """
    return _Compiler(limit).sequence(sequence, frozenset([END]), is_repeated=False)


class _Border:
    """Where a named capture begins or ends."""

    def __init__(self, name: str, *, is_start: bool) -> None:
        self.name = name
        self.is_start = is_start

    def step(self, subject: Subject, at: int) -> int:
        start = at if self.is_start else subject.captures[self.name][0]
        subject.captures[self.name] = (start, at)
        return at


_Part = Node | _Border


def _flat(nodes: Sequence) -> list[_Part]:
    flat: list[_Part] = []
    for node in nodes:
        if isinstance(node, Group):
            flat += [_Border(node.name, is_start=True), *_flat(node.body), _Border(node.name, is_start=False)]
        else:
            flat.append(node)
    return flat


def _solid(parts: list[_Part]) -> Sequence:
    return tuple([part for part in parts if not isinstance(part, _Border)])


class _Compiler:
    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def sequence(self, nodes: Sequence, follow: Heads, *, is_repeated: bool) -> Step:
        parts = _flat(nodes)
        steps: list[Step] = []
        while parts:
            part = parts.pop(0)
            if isinstance(part, _Border):
                steps.append(part.step)
                continue
            after = heads(_solid(parts), follow)
            if isinstance(part, Run) and not self._is_certain(part, after) and not _before_gap(part, parts):
                steps.append(self._gap(part, parts))
            else:
                steps.append(self._step(part, after, is_repeated=is_repeated))
        return steps[0] if len(steps) == 1 else _all_of(tuple(steps))

    def _is_certain(self, run: Run, follow: Heads) -> bool:
        """Whether a run can end at one place only: it cannot continue, or nothing after it can fail."""
        return run.low == run.high or END in follow or not meet(frozenset([Head(chars=run.chars)]), follow)

    def _step(self, node: Node, follow: Heads, *, is_repeated: bool) -> Step:
        if isinstance(node, Literal):
            return _literal(node.text)
        if isinstance(node, Run):
            high = node.low if node.lazy and END in follow else node.high
            return self._run(node.chars, node.low, high)
        if isinstance(node, Choice):
            return self._choice(node, follow, is_repeated=is_repeated)
        if isinstance(node, Repeat):
            return self._repeat(node, follow)
        if isinstance(node, Edge):
            return _start if node.is_start else _end
        raise PatternError("a lookahead is supported only as the whole opening, where it looks for the closing")

    def _run(self, chars: str, low: int, high: int | None) -> Step:
        """Build the step of a run, which never gives back what it matched."""
        if high is None and self._limit is None:
            endless = re.compile(f"{chars}*").match

            def take_all(subject: Subject, at: int) -> int:
                end = subject.run(chars, endless, at, len(subject.text))
                if end == len(subject.text) and not subject.final:
                    return WAIT
                return end if end - at >= low else FAIL

            return take_all
        most = self._limit if high is None else high
        match = re.compile(f"{chars}{{0,{most}}}").match

        def take(subject: Subject, at: int) -> int:
            found = match(subject.text, at)
            end = at if found is None else found.end()
            if end == len(subject.text) and end - at != most and not subject.final:
                return WAIT
            return end if end - at >= low else FAIL

        return take

    def _gap(self, run: Run, parts: list[_Part]) -> Step:
        """Build the step of a run up to a literal that it could contain, and remove both from the parts."""
        space, borders, literal = _gap_end(run, parts)
        before, after = borders
        del parts[: parts.index(literal) + 1]
        mark, low, limit = literal.text, run.low, self._limit
        most = sys.maxsize if limit is None else limit
        inside = re.compile(f"{run.chars}*").match
        is_space = re.compile(space.chars).match if space else None

        def jump(subject: Subject, at: int) -> int:
            place = subject.find(mark, at + low, limit)
            far = min(place, at + most + len(mark))
            stop = subject.run(run.chars, inside, at, far)
            if place == len(subject.text):
                is_near = place - at <= most + len(mark) and not subject.final
                return WAIT if is_near and _may_begin(mark, subject.text, at + low, stop) else FAIL
            if stop < place or place - at > most:
                return FAIL
            end = place
            while is_space and end > at + low and is_space(subject.text, end - 1):
                end -= 1
            for border in before:
                border.step(subject, end)
            for border in after:
                border.step(subject, place)
            return place + len(mark)

        return jump

    def _choice(self, node: Choice, follow: Heads, *, is_repeated: bool) -> Step:
        if END not in follow or is_repeated:
            beginnings = [heads(branch, follow) for branch in node.branches]
            for n, first in enumerate(beginnings):
                if any(meet(first, second) for second in beginnings[n + 1 :]):
                    raise PatternError("two alternatives can begin alike, so the choice between them is ambiguous")
        return _one_of(tuple([self.sequence(branch, follow, is_repeated=is_repeated) for branch in node.branches]))

    def _repeat(self, node: Repeat, follow: Heads) -> Step:
        first = heads(node.body)
        if END in first:
            raise PatternError("the repeated part can match the empty text")
        if END not in follow and meet(first, follow):
            raise PatternError("the text after a repeated group can begin like the group, so its end is ambiguous")
        body = self.sequence(node.body, (first | follow) - {END}, is_repeated=True)
        return _repeater(body, node.low, node.high or self._limit or sys.maxsize)


def _before_gap(run: Run, parts: list[_Part]) -> bool:
    """Whether the next run ends at a literal that this run cannot contain, so this run may match greedily."""
    rest = [part for part in parts if not isinstance(part, _Border)]
    if not rest or not isinstance(rest[0], Run) or not rest[0].lazy:
        return False
    literal = next((part for part in rest[1:] if isinstance(part, Literal)), None)
    return literal is not None and not holds(run.chars, literal.text[0])


def _gap_end(run: Run, parts: list[_Part]) -> tuple[Run | None, tuple[list[_Border], list[_Border]], Literal]:
    """Return the optional space before the literal that ends a run, the anchors around it, and the literal."""
    space: Run | None = None
    borders: tuple[list[_Border], list[_Border]] = ([], [])
    for part in parts:
        if isinstance(part, _Border):
            borders[space is not None].append(part)
        elif isinstance(part, Literal):
            _check_gap(run, space, part.text)
            return space, borders, part
        elif isinstance(part, Run) and space is None and part.low == 0 and not part.lazy:
            space = part
        else:
            break
    raise PatternError(f"the text after the repeated {run.chars} could be part of it, so its end is ambiguous")


def _check_gap(run: Run, space: Run | None, literal: str) -> None:
    if run.high is not None:
        raise PatternError(f"the bounded repeat of {run.chars} before {literal!r} could end in several places")
    if not run.lazy and all(holds(run.chars, char) for char in literal):
        raise PatternError(f"the greedy repeat of {run.chars} needs the last {literal!r}, which later text can move")
    if space is not None and (not run.lazy or holds(space.chars, literal[0])):
        raise PatternError(f"the repeat of {space.chars} before {literal!r} could end in several places")


def _may_begin(mark: str, text: str, first: int, last: int) -> bool:
    """Whether a mark could begin between two places, with the text ending inside it or before it."""
    size = len(text)
    if last == size:
        return True
    return any(
        text.endswith(mark[:n]) and first <= size - n <= last for n in range(1, min(len(mark), size - first + 1))
    )


def _literal(mark: str) -> Step:
    def step(subject: Subject, at: int) -> int:
        if subject.text.startswith(mark, at):
            return at + len(mark)
        is_open = not subject.final and len(subject.text) - at < len(mark)
        return WAIT if is_open and mark.startswith(subject.text[at:]) else FAIL

    return step


def _start(subject: Subject, at: int) -> int:  # noqa: ARG001 - a Step
    return at if at == 0 else FAIL


def _end(subject: Subject, at: int) -> int:
    if at < len(subject.text):
        return FAIL
    return at if subject.final else WAIT


def _all_of(steps: tuple[Step, ...]) -> Step:
    def step(subject: Subject, at: int) -> int:
        for one in steps:
            at = one(subject, at)
            if at < 0:
                break
        return at

    return step


def _one_of(steps: tuple[Step, ...]) -> Step:
    def step(subject: Subject, at: int) -> int:
        for one in steps:
            end = one(subject, at)
            if end != FAIL:
                return end
        return FAIL

    return step


def _repeater(body: Step, low: int, high: int) -> Step:
    def step(subject: Subject, at: int) -> int:
        for count in range(high):
            end = body(subject, at)
            if end == FAIL:
                return at if count >= low else FAIL
            if end == WAIT:
                return WAIT
            at = end
        return at

    return step
