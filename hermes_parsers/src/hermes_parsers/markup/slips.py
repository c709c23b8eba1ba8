"""What stands in a block where a call's tag is wanted: the tag with a slip in it, parameters, or JSON.

Only what is closed as a block is, and what begins as no prose does, counts as an attempt.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.coercion import coerce_json
from hermes_parsers.engine.scan import Draft
from hermes_parsers.markup.body import Call
from hermes_parsers.markup.dialect import KEYS, SPACES, Dialect
from hermes_parsers.markup.source import LONGEST_MARK, IncompleteError, Source
from hermes_parsers.writing import dumps


class SlipReader:
    """Looks at a block in which no call's tag stands at `at`; goes on where it was when more text has come."""

    __slots__ = ("_at", "_closing", "_dialect", "_ends", "_looked", "close")

    def __init__(self, dialect: Dialect, at: int, marks: tuple[str, str]) -> None:
        self._dialect = dialect
        self._ends = _ends(dialect, *marks)
        self._closing = marks[1]
        self._at = at
        # The damaged tag may begin as a whole one does.
        self._looked = at + (0 if dialect.is_block else 1)
        self.close = -1

    def read(self, source: Source, call: Call) -> int:
        """Return where the parameters of a call begin whose tag has a slip, or -1 with `close` set where JSON is.

        Without `close` it is prose. Raises IncompleteError.
        """
        if not self._is_meant(source):
            return -1
        for mark in self._ends.finditer(source.text, self._looked):
            if mark.lastgroup == "opening":
                # What follows is another call's, which this one must not cost.
                return -1
            head = _head(self._dialect).match(source.text, self._at)
            if head is not None:
                return self._begin(head, call)
            if mark.lastgroup == "closing":
                self.close = mark.start()
                return -1
            self._looked = mark.end()
        self._looked = max(self._looked, len(source.text) - LONGEST_MARK)
        if not source.final:
            raise IncompleteError(">")
        return -1

    def _begin(self, head: re.Match[str], call: Call) -> int:
        if head[1]:
            call.name = head[2] or ""
            call.slip = f"wanted {self._dialect.call.opening}…, found {head[1].strip()!r:.80}"
        return head.end()

    def _is_meant(self, source: Source) -> bool:
        """Whether what stands here can only be a call that went wrong."""
        at, dialect = self._at, self._dialect
        if not dialect.element and source.sees_any(dialect.slips, at) is not None:
            return True
        if source.sees("[", at):
            at = source.space(at + 1)
        return source.sees("{", at) and source.sees_any(KEYS, source.space(at + 1)) is not None

    def draft(self, source: Source, start: int, *, lenient: bool) -> Draft:
        """Report what stands in the block; with repairs, an object with a name and arguments is a call."""
        text = source.text[self._at : self.close]
        wanted = f"wanted {self._dialect.call.opening}…, found"
        draft = Draft(start, self.close + len(self._closing), AttemptStatus.INVALID_JSON)
        value, _ = coerce_json(text, None)
        if not isinstance(value, dict):
            draft.reason = f"{wanted} {text.strip()!r:.80}"
            return draft
        draft.reason = f"{wanted} a JSON object"
        name, arguments = value.get("name"), _arguments(value)
        draft.name = name if isinstance(name, str) and name else None
        if arguments is not None:
            draft.value, draft.arguments = arguments, dumps(arguments)
            if lenient and draft.name:
                draft.status = AttemptStatus.REPAIRED
        return draft


def _arguments(value: dict[str, Any]) -> dict[str, Any] | None:
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments, _ = coerce_json(arguments, None)
    return arguments if isinstance(arguments, dict) else None


@cache
def _ends(dialect: Dialect, opening: str, closing: str) -> re.Pattern[str]:
    """Return a pattern for what ends a block, or one of its calls, or begins another."""
    opens = "|".join(map(re.escape, {opening, dialect.call.opening}))
    return re.compile(f"(?P<opening>{opens})|(?P<closing>{re.escape(closing)})|{re.escape(dialect.call_close)}")


@cache
def _head(dialect: Dialect) -> re.Pattern[str]:
    """Return a pattern for a call's tag with a slip, if there is one at all, as the whole and its name."""
    follows = "|".join(map(re.escape, (dialect.parameter.opening, dialect.call_close)))
    if dialect.is_block:
        return re.compile(f"()()(?={follows})")
    word = re.escape(dialect.word)
    name = r"(?:[ =:]*(?:name *= *)?[\"']?([\w.:/@$-]+)[\"']? *(?=[<>\n]))?"
    return re.compile(f"((?:<?{word}{name}[^<>\\n]{{0,200}}>?)?){SPACES}(?={follows})")


def note_slip(call: Call, *, lenient: bool) -> None:
    """Say of a call that is judged what its tag's slip makes of it."""
    if call.slip and call.status in {AttemptStatus.OK, AttemptStatus.UNCLOSED}:
        is_repaired = lenient and call.name
        reason = f"{call.slip}; {call.reason}" if call.reason else call.slip
        call.fail(AttemptStatus.REPAIRED if is_repaired else AttemptStatus.INVALID_JSON, reason)
