"""The scanner's interface to a format: its marks, the reader of its blocks, and the ids of its calls."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar
from zlib import crc32

from hermes_parsers.engine.scanning.closed_blocks import ClosedBlocks
from hermes_parsers.engine.scanning.reasoning_marks import THINK, Thinking, by_mark
from hermes_parsers.engine.scanning.scan import UNDECIDED, Marks, Scan, Wait


class FormatReader:
    """Reads one wire format, block by block; stateless. No opener may be the beginning of another.

    Args:
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: The prompt has already opened the reasoning, so the text begins inside it.
    """

    openers: ClassVar[tuple[str, ...]] = ()
    """The marks that may begin a block: the driver calls `read` at each."""
    body: ClassVar[str] = ""
    r"""What must follow an opener, as a linear regular expression; it ends with `\Z` where more text may complete the
    match.
    """
    pattern: ClassVar[str] = ""
    """A regular expression that may begin a block as well, with the same duties."""
    reasoning_tags: ClassVar[tuple[str, str] | None] = ("<think>", "</think>")
    """The marks around reasoning in the template; None for a format without reasoning."""
    other_thinking: ClassVar[tuple[Thinking, ...]] = (THINK,)
    """Other marks around reasoning that are accepted, in a format with reasoning."""
    ends_reasoning: ClassVar[tuple[str, ...] | None] = None
    """The `openers` that end reasoning which is never closed; None for all of them. A call after such a mark was meant:
    the mark is a special token of the model, or a tag that no other text has. A match of `pattern` only (a bare object,
    a Python list) may be an example in the reasoning, and so may a call after a mark that also occurs in prose and
    code. Families with such marks list the other ones here.
    """
    section_closers: ClassVar[tuple[str, ...]] = ()
    """The marks that close a section around several calls, in a format whose calls have marks inside the section."""
    part_closers: ClassVar[tuple[str, ...]] = ()
    """The marks that close a part of a call, in a format with another mark at the call's end."""
    reasons_again: ClassVar[bool] = False
    """Whether reasoning may begin again after text: only if its marks are special tokens."""
    framing: ClassVar[str] = ""
    """What the model's template writes between content and the first call."""
    reasoning_framing: ClassVar[tuple[str, str]] = ("\n", "\n")
    """What the template writes after the opening and before the closing tag of reasoning."""
    reasoning_end: ClassVar[str] = "\n\n"
    """What the template writes after the closing tag of reasoning."""

    def __init__(self, *, promote_drafts: bool, reasoning_opened: bool) -> None:
        self.promote_drafts = promote_drafts
        self.reasoning_opened = reasoning_opened
        self.thinking = self._thinking()
        tags, (opening, closing) = tuple(self.thinking), self.block_marks()
        self.marks, self.stirs = _marks(self.openers, tags, self.pattern, self.body)
        self.stops, self._closed = self.marks, None
        if opening:
            others = tuple([mark for mark in self.openers if mark not in opening])
            self.stops = _marks(others, (*tags, *opening), self.pattern, self.body)[0]
            self._closed = _closed_blocks(opening, closing, self.section_closers, self.part_closers)
        self.prepare()

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the openers of blocks that a mark closes, and those closing marks.

        Everything in such a block was meant as a call: if it cannot be read, or follows a call, it is an attempt, not
        text.
        """
        return (), ()

    def prepare(self) -> None:
        """Compile the patterns for reading; called once, when the parser is created."""

    def _thinking(self) -> dict[str, Thinking]:
        if self.reasoning_tags is None:
            return {}
        own = Thinking(*self.reasoning_tags, *self.reasoning_framing, self.reasoning_end)
        return by_mark(own, *self.other_thinking)

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a block from its mark: add a `Draft` per attempt to `scan.drafts` and return where it ended, or -1."""
        raise NotImplementedError(
            f"{type(self).__qualname__} must implement read(scan, at); it was called with {scan!r} at {at}"
        )

    def read_now(self, scan: Scan, at: int) -> int:  # noqa: ARG002 - the signature of `read`
        """Read a block without waiting, like `read`, or return `UNDECIDED`.

        Called before `read` once the text has ended. It handles the frequent cases: well-formed calls, and broken ones,
        of which a hostile text has tens of thousands.
        """
        return UNDECIDED

    def read_block(self, scan: Scan, at: int, end: int = UNDECIDED) -> Wait:
        """Read a block as `read` does, after `read_now` returned `end`, and report its unreadable parts."""
        closed = self._closed
        if closed is None:
            return (yield from self.read(scan, at)) if end == UNDECIDED else end
        if end == UNDECIDED:
            end = yield from self._read_calls(scan, at)
        start = at
        if end < 0 and (again := (yield from closed.second_opener(scan, at))) >= 0:
            start, end = again, (yield from self._read_calls(scan, again))
        if end < 0:
            return (yield from closed.read(scan, at))
        return (yield from closed.leave(scan, start, end, self._read_calls))

    def is_left(self, scan: Scan, at: int, end: int) -> bool:
        """Whether a block that `read_now` has read up to `end` ends there, so `read_block` is not needed."""
        return end >= 0 and (self._closed is None or self._closed.is_left(scan, at, end))

    def _read_calls(self, scan: Scan, at: int) -> Wait:
        """Read like `read` if the mark has the body that it needs, or return -1."""
        while not scan.final and self.marks.confirm(scan.text, at) is None and self.marks.begins(scan.text, at):
            yield ""
        return (yield from self.read(scan, at)) if self.marks.confirm(scan.text, at) is not None else -1

    def read_whole(self, scan: Scan, at: int) -> int:
        """Read a block in text that has ended."""
        end = self.read_now(scan, at)
        if self.is_left(scan, at, end):
            return end
        reader = self.read_block(scan, at, end)
        while True:
            try:
                next(reader)
            except StopIteration as stop:
                ended: int = stop.value
                return ended

    def accepts_id(self, written: str) -> bool:  # noqa: ARG002 - for formats that are strict with ids
        """Whether an id that the model wrote can be the call's `id`; it is the call's `wire_id` in any case."""
        return True

    def own_id(self, written: str, name: str) -> str | None:  # noqa: ARG002 - for formats whose ids hold the name
        """Return the model's id of a call in the form of this format; None if an id must be made."""
        return written if self.accepts_id(written) else None

    def make_id(self, name: str, arguments: str, salt: int) -> str:
        """Make an id for a call without one; `salt` counts the ids that were already taken."""
        seed = crc32(f"{salt} {name} ".encode("utf-8", "surrogatepass"))
        return f"call_{crc32(arguments.encode('utf-8', 'surrogatepass'), seed):08x}"


@lru_cache(maxsize=256)
def _marks(openers: tuple[str, ...], tags: tuple[str, ...], pattern: str, body: str) -> tuple[Marks, Any]:
    first = "".join(sorted({re.escape(mark[0]) for mark in openers + tags}))
    classes = [f"[{first}]"] if first else []
    stirs = re.compile("|".join([*classes, pattern] if pattern else classes))
    return Marks(openers, pattern, body=body, tags=tags), stirs.search


@lru_cache(maxsize=256)
def _closed_blocks(*marks: tuple[str, ...]) -> ClosedBlocks:
    return ClosedBlocks(*marks)
