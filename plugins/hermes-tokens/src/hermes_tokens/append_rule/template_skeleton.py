"""The skeleton of a rendering: control ids and runs of text with holes, ready to be filled and encoded."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hermes_tokens.append_rule.placeholders import BREAK, SLOT, pad, slot
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.tokenizer import ChatTokenizer
from hermes_tokens.vocabulary import ControlToken

Treatment = Callable[[str], str]


def _verbatim(text: str) -> str:
    return text


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _in_quotes(text: str) -> str:
    """Quote a text with single quotes, as lfm2's newer templates do."""
    for found, written in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(found, written)
    return text


# Tried in this order: treatments that keep more of the text come first.
_TREATMENTS: Final[tuple[Treatment, ...]] = (
    _verbatim,
    str.lstrip,
    str.rstrip,
    str.strip,
    lambda text: text.lstrip("\n"),
    lambda text: text.strip("\n"),
    _json,
    lambda text: _json(text.strip()),
    lambda text: json.dumps(text)[1:-1],
    _in_quotes,
)


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole to fill with one of the conversation's own texts."""

    index: int
    treatment: Treatment


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSpan:
    """Ids that were not sampled, and the role of the message they belong to."""

    role: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A control token, or the text between two; `ids` are known if the text has no hole."""

    span: int
    parts: tuple[str | Hole, ...]
    ids: tuple[int, ...] | None = None
    lstrip: bool = False
    rstrip: bool = False
    at_start: bool = False
    continued: bool = False


class Scaffold:
    """A piece of a rendering. `ends` are the positions where its messages end, `roles` their roles."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        text: str,
        *,
        treatments: Mapping[int, Treatment],
        ends: Sequence[int] = (),
        roles: Sequence[str] = ("assistant",),
        after: ControlToken | None = None,
        at_start: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._treatments = treatments
        self._ends, self._roles = ends, roles
        self._runs = list(self._compile(text, after, at_start=at_start))

    def text(self, values: Sequence[str]) -> str:
        """Return the text with the holes filled."""
        return "".join(_fill(run.parts, values) for run in self._runs)

    def spans(self, values: Sequence[str]) -> Iterator[ContextSpan]:
        """Fill the holes, encode, and yield the ids of each message."""
        current, ids = -1, list[int]()
        for run in self._runs:
            if run.span != current:
                if ids:
                    yield ContextSpan(role=self._roles[current], ids=tuple(ids))
                current, ids = run.span, []
            ids += run.ids if run.ids is not None else self._encode(run, values)
        if ids:
            yield ContextSpan(role=self._roles[current], ids=tuple(ids))

    def _encode(self, run: _Run, values: Sequence[str]) -> list[int]:
        text = _fill(run.parts, values)
        text = text.lstrip() if run.lstrip else text
        text = text.rstrip() if run.rstrip else text
        return self._tokenizer.encode_plain(text, at_start=run.at_start, continued=run.continued) if text else []

    def _compile(self, text: str, before: ControlToken | None, *, at_start: bool) -> Iterator[_Run]:
        pieces = list(self._tokenizer.controls.split(text))
        place = 0
        for index, piece in enumerate(pieces):
            place += len(piece.text if isinstance(piece, ControlToken) else piece)
            span = bisect_left(self._ends, place)  # ends never decrease
            if isinstance(piece, ControlToken):
                yield _Run(span=span, parts=(piece.text,), ids=(piece.id,))
                before = piece
                continue
            following = pieces[index + 1] if index + 1 < len(pieces) else None
            run = _Run(
                span=span,
                parts=tuple(self._parts(piece)),
                lstrip=before is not None and before.rstrip,
                rstrip=isinstance(following, ControlToken) and following.lstrip,
                at_start=at_start and index == 0,
                continued=before is None and not (at_start and index == 0),
            )
            yield self._encode_ahead(run)

    def _encode_ahead(self, run: _Run) -> _Run:
        if any(isinstance(part, Hole) for part in run.parts):
            return run
        return _Run(span=run.span, parts=run.parts, ids=tuple(self._encode(run, ())))

    def _parts(self, text: str) -> Iterator[str | Hole]:
        for place, part in enumerate(SLOT.split(text)):
            if place % 2 == 0:
                yield part
            elif slot(int(part)) != BREAK:  # no longer needed: the control tokens are already found
                yield Hole(int(part), self._treatments.get(int(part), _verbatim))


def _fill(parts: Sequence[str | Hole], values: Sequence[str]) -> str:
    return "".join(part if isinstance(part, str) else part.treatment(values[part.index]) for part in parts)


def treatments(bare: str, probe: str, texts: set[int]) -> dict[int, Treatment]:
    """Determine how a template treats each text, from a rendering of plain slots and one of padded slots.

    Raises `TemplateError` for an unknown treatment.
    """
    found: dict[int, Treatment] = {}
    pieces = SLOT.split(bare)
    place = len(pieces[0]) if probe.startswith(pieces[0]) else -1
    for name, following in zip(pieces[1::2], pieces[2::2], strict=True):
        index = int(name)
        text = pad(slot(index)) if index in texts else slot(index)
        known = (found[index],) if index in found else _TREATMENTS
        fitting = (each for each in known if place >= 0 and probe.startswith(each(text) + following, place))
        treatment = next(fitting, None)
        if treatment is None:
            raise TemplateError(
                "expected a template that keeps a message's text, strips it or writes it as JSON, got one that "
                f"changes it otherwise: {probe[max(place, 0) :][:80]!r}",
                hint="use another template, or a plugin that renders prompts for this model",
            )
        found[index] = treatment
        place += len(treatment(text) + following)
    return found
