"""Read text between a format's marks where a call's tag or a parameter is expected.

It may be the tag with a slip in it, parameters without a tag, JSON, or anything else. If it is closed like a block, it
is an attempt to call a tool, whatever it says; a mark alone in prose is prose.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.coercion import coerce_json
from hermes_parsers.engine.scanning.scan import Draft
from hermes_parsers.markup.call import Call
from hermes_parsers.markup.dialect import SPACES, Dialect
from hermes_parsers.markup.source import LONGEST_MARK, IncompleteError, Source
from hermes_parsers.writing import dumps

_JSON_CALL: Final = re.compile(rf'\[?{SPACES}\{{{SPACES}"(?:name|arguments|parameters|function)"')
"""The beginnings of JSON in place of a call."""


class SlipReader:
    """Finds the end of the text at `at`, where no call can be read; resumes when more text has arrived.

    `closers` are the marks that end it; `tag_at` is the place of a call's opening mark, if there is one. After `read`,
    `close` and `end` are start and end of the mark that ends it (`is_early`: a call's end, because the block's is
    missing), `next_call` is where another call of the same block begins before that, and `later_call` where one begins
    after text that may not have been meant as a call; -1 if there is none.
    """

    __slots__ = (
        "_call_end",
        "_dialect",
        "_ends",
        "_has_looked",
        "_looked",
        "_tag_at",
        "at",
        "close",
        "end",
        "is_early",
        "later_call",
        "next_call",
    )

    def __init__(self, dialect: Dialect, at: int, closers: tuple[str, ...], tag_at: int = -1) -> None:
        self._dialect = dialect
        self._ends = _ends(dialect, closers)
        self.at = at
        self._tag_at = tag_at
        # Damaged text may begin like a complete call.
        self._looked = max(at, tag_at + 1)
        self._has_looked = False
        self._call_end: tuple[int, int] | None = None
        self.is_early = False
        self.close = self.end = self.next_call = self.later_call = -1

    def read(self, source: Source, call: Call) -> int:
        """Return where the parameters begin of a call with a slip in its tag, or -1. Raises IncompleteError."""
        for mark in self._ends.finditer(source.text, self._looked):
            if mark.lastgroup in {"call", "opening"}:
                # The text that follows belongs to another call, which must not be lost.
                if mark.lastgroup == "call" and self._is_meant(source):
                    self.next_call = mark.start()
                elif mark.lastgroup == "call" and self._call_end is None:
                    self.later_call = mark.start()
                return self._end_early()
            head = self._head_before(source, mark.start())
            if head is not None:
                return self._begin(head, call)
            if mark.lastgroup == "closing":
                self.close, self.end = mark.span()
                return -1
            self._call_end = self._call_end or mark.span()
            self._looked = mark.end()
        self._looked = max(self._looked, len(source.text) - LONGEST_MARK)
        if not source.final:
            raise IncompleteError(">")
        return self._end_early()

    def _end_early(self) -> int:
        """Use the end of a call as the end of the block, which has none; -1, since no parameters begin."""
        if self._call_end is not None and self.next_call < 0:
            self.close, self.end = self._call_end
            self.is_early = True
        return -1

    def _head_before(self, source: Source, mark: int) -> re.Match[str] | None:
        """Return the tag with a slip before the first mark: it contains no mark, so one search is enough."""
        has_looked, self._has_looked = self._has_looked, True
        # Nested parameters begin like every mark, including a damaged tag of a call.
        tag = self._dialect.call.opening.rpartition("=")[0] if self._dialect.element else ""
        if has_looked or (tag and (self.at == mark or source.text.startswith(tag, self.at))):
            return None
        return _head(self._dialect).match(source.text, self.at)

    def _begin(self, head: re.Match[str], call: Call) -> int:
        if head[1]:
            call.name = head[2] or ""
            call.slip = f"expected {self._dialect.call.opening}…, got {head[1].strip()!r:.80}"
        return head.end()

    def _is_meant(self, source: Source) -> bool:
        """Whether the text here can only be a broken call."""
        at, dialect = self.at, self._dialect
        if self._tag_at >= 0 or (not dialect.element and source.text.startswith(dialect.slips, at)):
            return True
        return _JSON_CALL.match(source.text, at) is not None

    def draft(self, source: Source, start: int, *, lenient: bool) -> Draft:
        """Report the text here as an attempt; with repairs, an object with a name and arguments is a call."""
        following = max(self.next_call, self.later_call)
        stop, end = (self.close, self.end) if self.close >= 0 else (following, following)
        draft = Draft(start, end, AttemptStatus.INVALID_JSON)
        wanted, at = f"expected {self._dialect.call.opening}…", self.at
        tag = None if self._dialect.is_block else self._dialect.call.match(source.text, at, stop)
        if tag is not None:
            draft.name = tag[1].strip() or None
            wanted, at = f"expected {self._dialect.parameter.opening}… or {self._dialect.call_close}", tag.end()
        text = source.text[at:stop].strip()
        value, _ = coerce_json(text, None)
        if isinstance(value, dict):
            draft.reason = f"{wanted}, got a JSON object"
            if tag is None:
                _take_object(draft, value, lenient=lenient)
        else:
            draft.reason = f"{wanted}, got {text!r:.80}" if text else f"{wanted}, got nothing"
        return draft


def _take_object(draft: Draft, value: dict[str, Any], *, lenient: bool) -> None:
    """Take name and arguments from an object in place of a call."""
    name, arguments = value.get("name"), _arguments(value)
    draft.name = name if isinstance(name, str) and name else None
    if arguments is not None:
        draft.value, draft.arguments = arguments, dumps(arguments)
        if lenient and draft.name:
            draft.status = AttemptStatus.REPAIRED


def _arguments(value: dict[str, Any]) -> dict[str, Any] | None:
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments, _ = coerce_json(arguments, None)
    return arguments if isinstance(arguments, dict) else None


@cache
def _ends(dialect: Dialect, closers: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the end of a block or of one of its calls, or the beginning of another call."""
    groups = {"call": dialect.call_openers, "opening": (opening for opening, _ in dialect.blocks), "closing": closers}
    named = [f"(?P<{kind}>{marks})" for kind, some in groups.items() if (marks := "|".join(map(re.escape, some)))]
    ends = "|".join(map(re.escape, filter(None, (dialect.suffix, dialect.call_close))))
    return re.compile(f"{'|'.join(named)}|{ends}")


@cache
def _head(dialect: Dialect) -> re.Pattern[str]:
    """Return a pattern for an optional call's tag with a slip; its groups are the tag and the name."""
    follows = "|".join(map(re.escape, (dialect.parameter.opening, dialect.call_close)))
    if dialect.is_block:
        return re.compile(f"()()(?={follows})")
    word = re.escape(dialect.word)
    name = r"(?:[ =:]*+(?:name *= *)?[\"']?([\w.:/@$-]++)[\"']? *(?=[<>\n]))?"
    return re.compile(f"((?:<?{word}{name}[^<>\\n]{{0,200}}>?)?){SPACES}(?={follows})")


def note_slip(call: Call, *, lenient: bool) -> None:
    """Set the result of a call whose tag has a slip."""
    if call.slip and call.status in {AttemptStatus.OK, AttemptStatus.UNCLOSED, AttemptStatus.REPAIRED}:
        is_repaired = lenient and call.name
        reason = f"{call.slip}; {call.reason}" if call.reason else call.slip
        call.fail(AttemptStatus.REPAIRED if is_repaired else AttemptStatus.INVALID_JSON, reason)
