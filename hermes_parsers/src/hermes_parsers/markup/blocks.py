"""Blocks of calls: the marks around them, and one call after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_parsers.engine.scan import Scan
from hermes_parsers.markup.body import Call
from hermes_parsers.markup.calls import enter_call, judge
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.slips import SlipReader, note_slip
from hermes_parsers.markup.source import IncompleteError, Source

if TYPE_CHECKING:
    from hermes_parsers.markup.parser import MarkupParser


class Block:
    """A block of calls, or a call without a block; goes on where it was when more text has come."""

    __slots__ = (
        "_at",
        "_body",
        "_call",
        "_dialect",
        "_end",
        "_is_entered",
        "_is_marked",
        "_parser",
        "_scan",
        "_slip",
        "_start",
    )

    def __init__(self, parser: MarkupParser, scan: Scan, at: int, dialect: Dialect) -> None:
        self._parser = parser
        self._scan = scan
        self._dialect = dialect
        self._start = self._at = at
        self._end = self._body = -1
        self._call: Call | None = None
        self._slip: SlipReader | None = None
        self._is_entered = self._is_marked = False

    def read(self, source: Source) -> int:
        """Add a draft for each call and return where the block ended, or -1 for prose. Raises IncompleteError."""
        if not self._is_entered:
            self._at, self._is_marked = _enter(source, self._start, self._dialect)
            self._is_entered = True
        while self._at >= 0:
            call = self._call
            if call is None:
                call = Call(self._dialect, self._scan.tools)
                call.start = self._at
                self._body = self._enter_call(source, call)
                if self._body < 0:
                    break
                self._call = call
            if not call.is_read:
                self._read_body(source, call)
            self._leave(source, call)
        return self._end

    def _enter_call(self, source: Source, call: Call) -> int:
        """Return where a call's parameters begin; -1 where no call stands. Raises IncompleteError."""
        if self._slip is None:
            begin = -1
            if source.sees(self._dialect.call.opening, self._at):
                begin = enter_call(source, call, self._is_marked)
            if begin >= 0 or self._end >= 0:
                return begin
            self._slip = _slip_of(source, self._dialect, self._start, self._at)
            if self._slip is None:
                return -1
        begin = self._slip.read(source, call)
        if begin < 0 and self._slip.close >= 0:
            draft = self._slip.draft(source, self._start, lenient=self._scan.lenient)
            self._scan.drafts.append(draft)
            self._end = draft.end
        if begin >= 0:
            self._slip = None
        return begin

    def _read_body(self, source: Source, call: Call) -> None:
        try:
            self._parser.read_body(source, call, self._body)
        except IncompleteError as incomplete:
            # Every mark of these formats ends so, and inside a call nothing else is waited for.
            incomplete.wakes = ">"
            raise

    def _leave(self, source: Source, call: Call) -> None:
        """Hand in a call that is read, and go on to the next."""
        parser, dialect = self._parser, self._dialect
        end, at, is_closed = (call.end, -1, False) if call.is_cut else _leave(source, call.end, dialect)
        judge(call, len(source.text))
        note_slip(call, lenient=self._scan.lenient)
        draft = parser.draft(call)
        if parser.wraps:
            draft.start, draft.end = self._start, end
        if self._is_marked and not is_closed and at < 0 and draft.is_good:
            missing = f"the closing {dialect.block_closes[0]} is missing"
            draft.cut(f"{missing}; {draft.reason}" if draft.reason else missing)
        self._scan.drafts.append(draft)
        self._start = self._at = at
        self._end = end
        self._call = None


def _enter(source: Source, at: int, dialect: Dialect) -> tuple[int, bool]:
    """Pass the block's opening mark, which may be doubled (vllm PR 20474), and what stands before a call's tag."""
    is_in_block = False
    for opening, _ in dialect.blocks:
        if source.sees(opening, at):
            is_in_block = True
            at = source.space(at + len(opening))
            if source.sees(opening, at):
                at = source.space(at + len(opening))
            break
    return _pass_prefix(source, at, dialect), is_in_block


def _slip_of(source: Source, dialect: Dialect, start: int, at: int) -> SlipReader | None:
    """Return a reader for what stands in a block in the place of a call's tag; None where there is no block."""
    if dialect.is_block and source.sees(dialect.call.opening, at):
        begin = source.space(at + len(dialect.call.opening))
        if dialect.call.optional and source.sees(dialect.call.optional, begin):
            begin = source.space(begin + len(dialect.call.optional))
        return SlipReader(dialect, begin, (dialect.call.opening, dialect.call_close))
    marks = next((marks for marks in dialect.blocks if source.text.startswith(marks[0], start)), None)
    return None if marks is None or dialect.is_block else SlipReader(dialect, at, marks)


def _pass_prefix(source: Source, at: int, dialect: Dialect) -> int:
    if dialect.prefix and source.sees(dialect.prefix, at):
        return source.space(at + len(dialect.prefix))
    return at


def _leave(source: Source, end: int, dialect: Dialect) -> tuple[int, int, bool]:
    """Return where a call and its block have ended, where the next call's tag stands or -1, and if the block closed."""
    after = source.space(end)
    if dialect.suffix and source.sees(dialect.suffix, after):
        end = after + len(dialect.suffix)
        after = source.space(end)
    closing = source.sees_any(dialect.block_closes, after)
    if closing is not None:
        return after + len(closing), -1, True
    if source.is_cut_mark(dialect.block_closes, after):
        return len(source.text), -1, False
    if not dialect.block_closes:
        return end, -1, False
    following = _pass_prefix(source, after, dialect)
    return end, (following if source.sees(dialect.call.opening, following) else -1), False
