"""Calls whose name stands outside the JSON: a head with the name, the arguments, maybe a closing mark."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, ClassVar, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import Draft, Scan, Wait, cut
from hermes_parsers.engine.values.error_recovery import Ends, broken_call
from hermes_parsers.engine.values.json_calls import repaired_end, repaired_object, set_arguments
from hermes_parsers.engine.values.json_text import JsonError, is_shallow, read_value, value_at, window
from hermes_parsers.families.framing.brackets import is_sure_end, take_extra

Find = Callable[[str, int], re.Match[str] | None]
SPACES: Final = r"[ \t\n\r]*+"
FENCE: Final = "```"
END: Final = r"(?![\s\S])"
r"""The text's end where a call shows already; at `\Z` the driver waits, and takes all for prose if no more comes."""


class NamedJsonParser(ScanningParser):
    """The base of these formats; a subclass says what a head looks like.

    Calls may stand in a section, whose marks are framing and may be missing.
    """

    head: ClassVar[str] = ""
    """A head up to the arguments as a regular expression: its first group is the call's, its second holds the name."""
    usual_head: ClassVar[str] = ""
    """The same as templates write it, where that is much faster to match."""
    cut_head: ClassVar[str] = ""
    r"""A head that the end of the text interrupts; it ends in `\Z`."""
    opener: ClassVar[str] = ""
    """The mark of a call in a section."""
    closers: ClassVar[tuple[str, ...]] = ()
    """What closes a call, the usual mark first; nothing for a format without."""
    breaks: ClassVar[tuple[str, ...]] = ()
    """What else a call that cannot be read ends at."""
    is_sure: ClassVar[bool] = False
    """Whether a head is a call even when neither JSON nor a closing mark follows it."""
    section_closers: ClassVar[tuple[str, ...]] = ()
    is_fenced: ClassVar[bool] = False
    """Whether a code fence may stand around the arguments."""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around calls and around sections."""
        return (self.openers, (*self.closers, *self.section_closers)) if self.closers else ((), ())

    def prepare(self) -> None:
        """Compile what reading takes."""
        self._head, self._cut_head = re.compile(self.head).match, re.compile(self.cut_head).match
        self._usual_head = re.compile(self.usual_head or self.head).match
        self._tail, self._cut_tail = _tail(self.closers, FENCE if self.is_fenced else "")
        self._next, self._cut_next = _next(self.opener, self.section_closers)
        self._ends = Ends(self.closers, self.breaks)

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a call and, in a section, those that follow it, up to the section's end."""
        end, goes_on = -1, True
        while goes_on:
            after = self._read_plain(scan, at)
            if after < 0:
                after = yield from self._read_call(scan, at)
            if after < 0 or not self.section_closers:
                return max(after, end)
            yield from wait(scan, self._cut_next, after)
            found = self._next(scan.text, after)
            end = at = after if found is None else found.end()
            goes_on = found is not None and found[1] is None
        return end

    def draft(self, scan: Scan, head: re.Match[str], end: int) -> Draft:  # noqa: ARG002 - for subclasses that know tools
        """Begin the draft of a call with its name, which a head may hold in other ways."""
        return Draft(head.start(1), end, name=head[2])

    def finish(self, scan: Scan, draft: Draft) -> Draft:  # noqa: ARG002 - for subclasses that know tools
        """Return the draft when its arguments are known."""
        return draft

    def _read_plain(self, scan: Scan, at: int) -> int:
        """Read a well-formed call as templates show it, which most are; -1 leaves all others to the long way."""
        if scan.faults >= _FEW:
            return -1
        text, offset = window(scan.text, at)
        if not (head := self._usual_head(text, at - offset)):
            return -1
        body = head.end()
        try:
            value, end = value_at(text, body)
        except JsonError:
            scan.faults += 1
            return -1
        tail = self._tail(text, end)
        if not self.closers and not is_sure_end(text, end, is_all=scan.final and not offset and text is scan.text):
            return -1
        if type(value) is not dict or not tail or not is_shallow(text, body, end):
            return -1
        draft = self.draft(scan, head, tail.end())
        draft.start += offset
        draft.end += offset
        draft.arguments, draft.value = text[body:end], value
        scan.drafts.append(self.finish(scan, draft))
        return draft.end

    def _read_call(self, scan: Scan, at: int) -> Wait:
        """Read any call, waiting for it; return its end, or -1 where none is."""
        if not scan.final:
            yield from wait(scan, self._cut_head, at)
        if head := self._cut_head(scan.text, at):
            return self._read_cut_head(scan, head)
        if not (head := self._head(scan.text, at)):
            return -1
        at = head.end()
        if not scan.text.startswith(("{", "["), at):
            return (yield from self._read_other(scan, head))
        try:
            value, end = yield from read_value(scan, at)
        except JsonError as error:
            return (yield from self._read_broken(scan, head, error))
        return (yield from self._close(scan, head, value, end))

    def _read_cut_head(self, scan: Scan, head: re.Match[str]) -> int:
        """Report a call that the text's end cut off in its head; without a part of the call it is only a mark."""
        if not head[1]:
            return -1
        scan.drafts.append(broken_call(head.start(1), len(scan.text), AttemptStatus.TRUNCATED, _CUT))
        return len(scan.text)

    def _read_other(self, scan: Scan, head: re.Match[str]) -> Wait:
        """Read a head that no object follows: with a closing mark it was meant as a call, without one it is prose."""
        start, at = head.start(1), head.end()
        if not self.closers:
            return -1
        found = yield from self._ends.marks.seek(scan, at)
        is_closed = found is not None and found[0] in self.closers
        if not is_closed and not self.is_sure:
            return -1
        stop = len(scan.text) if found is None else found.start()
        end = found.end() if found is not None and is_closed else stop
        body = scan.text[at : self._before_fence(scan.text, at, stop)].strip()
        if is_closed and body in {"", "null"}:
            return self._hand_in(scan, head, Draft(start, end, arguments="{}", value={}))
        if is_closed and (written := _string(body)) is not None:
            draft = Draft(start, end)
            set_arguments(draft, scan.text, written, -1, -1)
            return self._hand_in(scan, head, draft)
        error = JsonError(f"arguments are an object, found {body!r:.80}", at)
        return self._hand_in(scan, head, broken_call(start, end, AttemptStatus.INVALID_JSON, error))

    def _close(self, scan: Scan, head: re.Match[str], value: Any, end: int) -> Wait:
        """Find the closing mark behind the arguments, and hand the call in."""
        draft = self.draft(scan, head, end)
        set_arguments(draft, scan.text, value, head.end(), end)
        if self.closers:
            yield from wait(scan, self._cut_tail, end)
            if tail := self._tail(scan.text, end):
                draft.end = tail.end()
            elif extra := _EXTRA(scan.text, end):
                error = JsonError("something follows the object", extra.end() - 1)
                error.end = extra.end() - 1
                return (yield from self._read_broken(scan, head, error))
            else:
                draft.cut(f"the closing {self.closers[0]} is missing")
                if self.is_fenced and (fence := _FENCE_END(scan.text, end)):
                    draft.end = fence.end()
                if self._cut_tail(scan.text, end):
                    draft.end = max(end, len(scan.text.rstrip()))
        else:
            yield from take_extra(scan, draft)
        scan.drafts.append(self.finish(scan, draft))
        return draft.end

    def _read_broken(self, scan: Scan, head: re.Match[str], error: JsonError) -> Wait:
        """Find where a call that cannot be read ends, and repair it where that is wanted."""
        start, at = head.start(1), head.end()
        if self.closers or error.end < 0:
            stop, end, status = yield from self._ends.recover(scan, at, error)
        else:
            stop = end = error.end
            status = AttemptStatus.INVALID_JSON
        if not self.closers and status is not AttemptStatus.TRUNCATED:
            stop = end = _end_of_repairable(scan.text, at, stop)
        if scan.lenient and (repaired := repaired_object(scan.text, at, self._before_fence(scan.text, at, stop))):
            draft = self.draft(scan, head, end)
            set_arguments(draft, scan.text, repaired[0], -1, -1)
            scan.drafts.append(self.finish(scan, draft.fail(AttemptStatus.REPAIRED, repaired[1])))
            return end
        return self._hand_in(scan, head, broken_call(start, end, status, error))

    def _hand_in(self, scan: Scan, head: re.Match[str], draft: Draft) -> int:
        """Hand in a call without JSON, with the name in its head."""
        named = self.draft(scan, head, draft.end)
        draft.name, draft.id = named.name, named.id
        scan.drafts.append(self.finish(scan, draft))
        return draft.end

    def _before_fence(self, text: str, at: int, stop: int) -> int:
        if not self.is_fenced:
            return stop
        return at + len(text[at:stop].rstrip().removesuffix(FENCE))


_FEW: Final = 8
"""After so many failed reads of a text, the long way is taken at once."""
_CUT: Final = JsonError("the text ends inside the call", 0, is_cut=True)
_FENCE_END: Final = re.compile(rf"{SPACES}{FENCE}").match
_EXTRA: Final = re.compile(r"[ \t\n\r]*+[{}\]]").match


def behind(mark: str) -> str:
    """Match what may stand between a mark, which an opener may be, and what follows it."""
    escaped = re.escape(mark)
    return rf"(?:(?<={escaped})|{SPACES}{escaped}){SPACES}(?>{escaped}{SPACES})?+"


def wait(scan: Scan, cut_here: Find, at: int) -> Generator[str, None, None]:
    """Wait while the end of the text interrupts what stands here."""
    while not scan.final and cut_here(scan.text, at):
        yield ""


def _string(body: str) -> str | None:
    """Return the text of the JSON string that fills a body; templates that dump their arguments twice teach it."""
    try:
        value, end = value_at(body, 0)
    except JsonError:
        return None
    return value if isinstance(value, str) and end == len(body) else None


def _end_of_repairable(text: str, at: int, stop: int) -> int:
    """Return where an object ends that leniency could read: what follows it is prose. `stop` where it could not."""
    if text.find("}", at, stop) < 0:
        return stop
    end = repaired_end(text, at, stop)
    return stop if end < 0 else end


@cache
def _tail(closers: tuple[str, ...], fence: str) -> tuple[Find, Find]:
    """Compile what closes a call, and the text's end inside that."""
    if not closers:
        return re.compile("").match, re.compile("(?!)").match
    fenced = f"(?>{fence}{SPACES})?+" if fence else ""
    whole = "|".join(map(re.escape, closers))
    interrupted = "|".join([fenced + cut(closer) for closer in closers] + [cut(fence)] * bool(fence))
    return re.compile(f"{SPACES}{fenced}(?:{whole})").match, re.compile(f"{SPACES}(?:{interrupted})").match


@cache
def _next(opener: str, section_closers: tuple[str, ...]) -> tuple[Find, Find]:
    """Compile what goes on behind a call: the section's end, its group, or the next call; and the text's end there."""
    ends = "|".join(map(re.escape, section_closers))
    interrupted = "|".join([cut(mark) for mark in (*section_closers, opener)])
    return (
        re.compile(f"{SPACES}(?:({ends})|(?={re.escape(opener)}))").match,
        re.compile(f"{SPACES}(?:{interrupted})").match,
    )
