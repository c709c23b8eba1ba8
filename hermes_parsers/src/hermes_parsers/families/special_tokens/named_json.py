"""Calls with the name outside the JSON: a head with the name, the arguments, and optionally a closing mark."""

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
r"""The end of the text where a call has begun; at `\Z` the driver waits, and treats it as prose if no more text comes.
"""


class NamedJsonParser(ScanningParser):
    """The base of these formats; a subclass defines the head.

    Calls may be in a section; its marks are framing and may be missing.
    """

    head: ClassVar[str] = ""
    """A head up to the arguments as a regular expression: its first group begins the call, its second holds the name.
    """
    usual_head: ClassVar[str] = ""
    """The same in the template's exact form, if that is much faster to match."""
    cut_head: ClassVar[str] = ""
    r"""A head that the end of the text cuts off; it ends in `\Z`."""
    opener: ClassVar[str] = ""
    """The mark of a call in a section."""
    closers: ClassVar[tuple[str, ...]] = ()
    """The marks that close a call, the usual one first; empty for a format without one."""
    breaks: ClassVar[tuple[str, ...]] = ()
    """Further marks at which an unreadable call ends."""
    is_sure: ClassVar[bool] = False
    """Whether a head counts as a call even if neither JSON nor a closing mark follows it."""
    section_closers: ClassVar[tuple[str, ...]] = ()
    is_fenced: ClassVar[bool] = False
    """Whether the arguments may be in a code fence."""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around calls and around sections."""
        return (self.openers, (*self.closers, *self.section_closers)) if self.closers else ((), ())

    def prepare(self) -> None:
        """Compile the patterns for reading."""
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
        """Begin the draft of a call with its name; a subclass may find the name in another way."""
        return Draft(head.start(1), end, name=head[2])

    def finish(self, scan: Scan, draft: Draft) -> Draft:  # noqa: ARG002 - for subclasses that know tools
        """Complete the draft once its arguments are known."""
        return draft

    def _read_plain(self, scan: Scan, at: int) -> int:
        """Read a well-formed call written like the template's, as most are; -1 leaves any other to the slow path."""
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
        """Read any call, waiting for its text; return its end, or -1 if there is none."""
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
        """Report a call that the end of the text cut off in its head.

        Without any part of the call it is only a mark.
        """
        if not head[1]:
            return -1
        scan.drafts.append(broken_call(head.start(1), len(scan.text), AttemptStatus.TRUNCATED, _CUT))
        return len(scan.text)

    def _read_other(self, scan: Scan, head: re.Match[str]) -> Wait:
        """Read a head without an object after it.

        With a closing mark it was meant as a call, without one it is prose.
        """
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
        error = JsonError(f"expected an object as arguments, got {body!r:.80}", at)
        return self._hand_in(scan, head, broken_call(start, end, AttemptStatus.INVALID_JSON, error))

    def _close(self, scan: Scan, head: re.Match[str], value: Any, end: int) -> Wait:
        """Find the closing mark after the arguments, and add the call."""
        draft = self.draft(scan, head, end)
        set_arguments(draft, scan.text, value, head.end(), end)
        if self.closers:
            yield from wait(scan, self._cut_tail, end)
            if tail := self._tail(scan.text, end):
                draft.end = tail.end()
            elif extra := _EXTRA(scan.text, end):
                error = JsonError("text follows the object", extra.end() - 1)
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
        """Find where an unreadable call ends, and repair it in lenient mode."""
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
        """Add a call without JSON, with the name in its head."""
        named = self.draft(scan, head, draft.end)
        draft.name, draft.id = named.name, named.id
        scan.drafts.append(self.finish(scan, draft))
        return draft.end

    def _before_fence(self, text: str, at: int, stop: int) -> int:
        if not self.is_fenced:
            return stop
        return at + len(text[at:stop].rstrip().removesuffix(FENCE))


_FEW: Final = 8
"""After this many failed reads of a text, the slow path is used at once."""
_CUT: Final = JsonError("the text ends inside the call", 0, is_cut=True)
_FENCE_END: Final = re.compile(rf"{SPACES}{FENCE}").match
_EXTRA: Final = re.compile(r"[ \t\n\r]*+[{}\]]").match


def behind(mark: str) -> str:
    """Match the text between a mark (possibly an opener) and what follows it."""
    escaped = re.escape(mark)
    return rf"(?:(?<={escaped})|{SPACES}{escaped}){SPACES}(?>{escaped}{SPACES})?+"


def wait(scan: Scan, cut_here: Find, at: int) -> Generator[str, None, None]:
    """Wait while the end of the text cuts off what begins here."""
    while not scan.final and cut_here(scan.text, at):
        yield ""


def _string(body: str) -> str | None:
    """Return the text of a JSON string that fills a body; templates that dump their arguments twice cause this."""
    try:
        value, end = value_at(body, 0)
    except JsonError:
        return None
    return value if isinstance(value, str) and end == len(body) else None


def _end_of_repairable(text: str, at: int, stop: int) -> int:
    """Return where an object ends that can be read leniently (the rest is prose), or `stop` if it cannot be read."""
    if text.find("}", at, stop) < 0:
        return stop
    end = repaired_end(text, at, stop)
    return stop if end < 0 else end


@cache
def _tail(closers: tuple[str, ...], fence: str) -> tuple[Find, Find]:
    """Compile the closing of a call, and the end of the text inside that."""
    if not closers:
        return re.compile("").match, re.compile("(?!)").match
    fenced = f"(?>{fence}{SPACES})?+" if fence else ""
    whole = "|".join(map(re.escape, closers))
    interrupted = "|".join([fenced + cut(closer) for closer in closers] + [cut(fence)] * bool(fence))
    return re.compile(f"{SPACES}{fenced}(?:{whole})").match, re.compile(f"{SPACES}(?:{interrupted})").match


@cache
def _next(opener: str, section_closers: tuple[str, ...]) -> tuple[Find, Find]:
    """Compile what follows a call: the section's end (its group), or the next call; and the end of the text there."""
    ends = "|".join(map(re.escape, section_closers))
    interrupted = "|".join([cut(mark) for mark in (*section_closers, opener)])
    return (
        re.compile(f"{SPACES}(?:({ends})|(?={re.escape(opener)}))").match,
        re.compile(f"{SPACES}(?:{interrupted})").match,
    )
