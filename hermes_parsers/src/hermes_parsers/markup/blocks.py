"""Read blocks of calls: the marks around them, and the calls one after the other."""

from __future__ import annotations

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.scan import Draft, Scan
from hermes_parsers.markup.call import Call
from hermes_parsers.markup.call_reader import enter_call, judge
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.missing_openings import split_glued
from hermes_parsers.markup.reader import CallReader
from hermes_parsers.markup.slips import SlipReader, note_slip
from hermes_parsers.markup.source import IncompleteError, Source


class Block:
    """A block of calls, or a call without a block; resumes when more text has arrived."""

    __slots__ = (
        "_at",
        "_body",
        "_call",
        "_dialect",
        "_end",
        "_held",
        "_is_entered",
        "_is_marked",
        "_junk",
        "_parser",
        "_scan",
        "_slip",
        "_start",
    )

    def __init__(self, parser: CallReader, scan: Scan, at: int, dialect: Dialect) -> None:
        self._parser = parser
        self._scan = scan
        self._dialect = dialect
        self._start = self._at = at
        self._end = self._body = -1
        self._call: Call | None = None
        self._slip: SlipReader | None = None
        self._held: Draft | None = None
        self._junk: Draft | None = None
        self._is_entered = self._is_marked = False

    def read(self, source: Source) -> int:
        """Add a draft for each call and return where the block ended, or -1 for prose. Raises IncompleteError."""
        if not self._is_entered:
            self._at, self._is_marked = _enter(source, self._start, self._dialect)
            self._is_entered = True
        while self._at >= 0:
            call = self._call
            if call is None:
                if self._parser.reads_otherwise(source, self._at):
                    break
                call = Call(self._dialect, self._scan.tools)
                call.start = self._at
                self._body = self._enter_call(source, call)
                if self._body < 0:
                    if self._slip is None or not self._report(source, self._slip):
                        break
                    continue
                self._release(goes_on=True)
                self._hand_in_junk()
                self._call = call
            if not call.is_read:
                self._read_body(source, call)
            self._leave(source, call)
        self._release(goes_on=False)
        return self._end

    def _release(self, *, goes_on: bool) -> None:
        """Add the call that neither the block's end nor another call followed, now that its end is known."""
        draft, self._held = self._held, None
        if draft is not None:
            self._scan.drafts.append(draft if goes_on else self._without_end(draft))

    def _hand_in_junk(self) -> None:
        """Report the text before a call in its block, now that the call is certain."""
        if self._junk is not None:
            self._scan.drafts.append(self._junk)
            self._start, self._junk = self._junk.end, None

    def _without_end(self, draft: Draft) -> Draft:
        missing = f"the closing {self._dialect.block_closes[0]} is missing"
        return draft.cut(f"{missing}; {draft.reason}" if draft.reason else missing)

    def _enter_call(self, source: Source, call: Call) -> int:
        """Return where a call's parameters begin; -1 if there is no call. Raises IncompleteError."""
        if self._slip is None:
            begin = -1
            if source.sees(self._dialect.call.opening, self._at):
                # After other text, the mark of the block may have been text too.
                begin = enter_call(source, call, self._is_marked and self._junk is None)
            if begin >= 0 and self._is_shown(call):
                return -1
            if begin >= 0:
                return begin
            self._slip = _slip_of(source, self._dialect, self._at, is_marked=self._is_marked)
        begin = self._slip.read(source, call)
        if begin >= 0:
            self._slip = None
        return begin

    def _is_shown(self, call: Call) -> bool:
        """Whether a self-closing tag is after a quote or in a code fence, as in an answer that shows one."""
        is_bare = self._end < 0 and (self._junk is not None or not self._is_marked)
        return (
            is_bare
            and call.is_read
            and bool(call.repairs)
            and self._dialect.is_common
            and self._scan.follows_quote(call.start)
        )

    def _is_named(self, source: Source, slip: SlipReader) -> bool:
        """Whether the mark that would begin an attempt is between quotes, as in text that names it."""
        if self._end >= 0:
            return False
        start, text, dialect = self._start, source.text, self._dialect
        marks = [mark for mark in (*dialect.openers, dialect.prefix) if mark.endswith(">")]
        ends = [start + len(mark) for mark in marks if text.startswith(mark, start)]
        if (tag := dialect.call.match(text, start, max(slip.close, start))) is not None:
            ends.append(tag.end())
        return any(self._scan.is_quoted(start, end) for end in ends)

    def _report(self, source: Source, slip: SlipReader) -> bool:
        """Add an unreadable call as an attempt and continue after it; return False if it is prose."""
        dialect, tools = self._dialect, self._scan.tools
        if self._is_named(source, slip):
            return False
        if slip.close >= 0:
            draft = slip.draft(source, self._start, lenient=self._scan.lenient)
            glued = split_glued(dialect, source.text[slip.at : slip.close], tools) if dialect.is_block else None
            if glued is not None:
                draft = self._parser.draft_glued(draft, *glued, tools)
            # If the block has no end, the end is not searched again after each of its calls.
            is_over = not self._is_marked or slip.is_early or source.text.startswith(dialect.block_closes, slip.close)
            end, at, _, _ = (slip.end, -1, True, False) if is_over else _leave(source, slip.end, dialect)
        elif slip.next_call >= 0 and self._is_marked and self._junk is None:
            draft = slip.draft(source, self._start, lenient=self._scan.lenient)
            end, at = slip.next_call, _pass_prefix(source, slip.next_call, dialect)
        elif slip.later_call >= 0 and self._is_marked and self._junk is None:
            at = _pass_prefix(source, slip.later_call, dialect)
            self._junk = slip.draft(source, self._start, lenient=False)
            self._at, self._slip = at, None
            return True
        else:
            return False
        self._junk = None
        self._release(goes_on=not slip.is_early)
        self._scan.drafts.append(draft)
        self._start, self._at, self._end, self._slip = end, at, end, None
        return True

    def _read_body(self, source: Source, call: Call) -> None:
        try:
            self._parser.read_body(source, call, self._body)
        except IncompleteError as incomplete:
            # Every mark of these formats ends with this character, and a call waits for nothing else.
            incomplete.wakes = ">"
            raise

    def _leave(self, source: Source, call: Call) -> None:
        """Add a call that was read, and continue with the next."""
        parser, dialect = self._parser, self._dialect
        end, at, is_closed, is_followed = call.end, -1, False, False
        if not call.is_cut:
            end = _pass_repeated(source, call)
            end, at, is_closed, is_followed = _leave(source, end, dialect)
        judge(call, len(source.text))
        note_slip(call, lenient=self._scan.lenient)
        draft = parser.draft(call)
        if _may_be_glued(call):
            inner = source.text[call.start + len(dialect.call.opening) : call.end - len(dialect.call_close)]
            glued = split_glued(dialect, inner, call.tools)
            draft = draft if glued is None else parser.draft_glued(draft, *glued, call.tools)
        if parser.wraps:
            draft.start, draft.end = self._start, end
        # Without marks around the calls, the text that follows belongs to no call; a failed call is the last.
        self._at = at if (self._is_marked or is_followed) and end > draft.start else -1
        self._start = self._at
        if not self._is_marked or is_closed or is_followed or not draft.is_good:
            self._scan.drafts.append(draft)
        else:
            self._held = draft
        self._end = end
        self._call = None


def pass_repeated_end(source: Source, end: int, dialect: Dialect) -> int:
    """Return where a block ends, after duplicate closing marks. Raises IncompleteError.

    Its calls are added before, because their content is certain.
    """
    marks = dialect.block_closes or (dialect.call_close,)
    closing = next((mark for mark in marks if end > 0 and source.text.endswith(mark, 0, end)), None)
    while closing is not None and source.sees(closing, after := source.space(end)):
        end = after + len(closing)
    return end


def _enter(source: Source, at: int, dialect: Dialect) -> tuple[int, bool]:
    """Skip the block's opening mark, which may be doubled (vllm PR 20474), and the text before a call's tag."""
    is_in_block = False
    for opening, _ in dialect.blocks:
        if source.sees(opening, at):
            is_in_block = True
            at = source.space(at + len(opening))
            if source.sees(opening, at):
                at = source.space(at + len(opening))
            break
    return _pass_prefix(source, at, dialect), is_in_block


def _slip_of(source: Source, dialect: Dialect, at: int, *, is_marked: bool) -> SlipReader:
    """Return a reader for text where no call could be read, from the call's opening mark or in its place."""
    tag_at = at if source.sees_any(dialect.call_openers, at) else -1
    closers = dialect.block_closes
    if not is_marked or (dialect.is_block and tag_at >= 0):
        closers = tuple(filter(None, (dialect.call_close, dialect.suffix, *closers)))
    if dialect.is_block and tag_at >= 0:
        at = source.space(at + len(dialect.call.opening))
        if dialect.call.optional and source.sees(dialect.call.optional, at):
            at = source.space(at + len(dialect.call.optional))
    return SlipReader(dialect, at, closers, tag_at)


def _pass_repeated(source: Source, call: Call) -> int:
    """Return where a call ends, after duplicate closing marks."""
    end, closing = call.end, call.dialect.call_close
    while call.is_closed and call.dialect.blocks and source.sees(closing, after := source.space(end)):
        end = after + len(closing)
        call.repair(f"the closing {closing} appears twice")
    return end


def _may_be_glued(call: Call) -> bool:
    """Whether an opening mark may be missing: text was unreadable, or a value contains another closing mark."""
    if not (call.dialect.is_block and call.is_closed):
        return False
    closing = call.dialect.parameter_close
    return call.status is AttemptStatus.INVALID_JSON or any(closing in text for _, _, text, _ in call.parameters)


def _pass_prefix(source: Source, at: int, dialect: Dialect) -> int:
    if dialect.prefix and source.sees(dialect.prefix, at):
        return source.space(at + len(dialect.prefix))
    return at


def _leave(source: Source, end: int, dialect: Dialect) -> tuple[int, int, bool, bool]:
    """Return where a call and its block end, where the rest is (or -1), if it is closed, and if a call follows."""
    after = source.space(end)
    while dialect.suffix and source.sees(dialect.suffix, after):
        end = after + len(dialect.suffix)
        after = source.space(end)
    closing = source.sees_any(dialect.block_closes, after)
    if closing is not None:
        return after + len(closing), -1, True, False
    if source.is_cut_mark(dialect.block_closes, after):
        return len(source.text), -1, False, False
    if not dialect.block_closes:
        return end, -1, False, False
    following = _pass_prefix(source, after, dialect)
    is_call = source.sees(dialect.call.opening, following)
    return end, following, False, is_call
