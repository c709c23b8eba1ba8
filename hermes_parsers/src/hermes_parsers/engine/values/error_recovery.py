"""Find where an unreadable call ends, so that the calls after it are kept."""

from __future__ import annotations

from collections.abc import Generator

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.scan import INVALID_JSON, SPACE, TRUNCATED, Draft, Marks, Scan
from hermes_parsers.engine.values.json_text import JsonError


class Ends:
    """The marks at which a broken call ends: its closing marks, and those that begin the next call."""

    __slots__ = ("closers", "marks")

    def __init__(self, closers: tuple[str, ...], openers: tuple[str, ...]) -> None:
        self.closers = closers
        self.marks = Marks((*closers, *openers))

    def at_mark(self, text: str, at: int) -> tuple[int, int]:
        """Return where the body that begins at `at` ends in whole text, at the first mark, and where its call ends."""
        found = self.marks.sure(text, at)
        if found is None:
            return len(text), len(text)
        return found.start(), found.end() if found[0] in self.closers else found.start()

    def recover(self, scan: Scan, at: int, error: JsonError) -> Generator[str, None, tuple[int, int, AttemptStatus]]:
        """Return where the broken body that begins at `at` ends, where its call ends, and the kind of mark.

        A body whose brackets balance before a closing mark ends there, whatever its strings contain. Any other body
        ends at the first mark, even inside a possible string: if a quote is missing, strings cannot be trusted. But if
        the fault comes after that mark, and another closing mark follows before the next call, the first mark was text.
        """
        if scan.final and error.end < 0 and not error.is_cut:
            body, end = self.at_mark(scan.text, at)
            if body < error.at and end > body:
                body, end = yield from self._behind_fault(scan, body, end, error.at)
            return body, end, INVALID_JSON
        if error.end >= 0 and (after := (yield from self._find_closer(scan, error.end))):
            return after[0], after[1], INVALID_JSON
        found = self.marks.sure(scan.text, at) if scan.final else (yield from self.marks.seek(scan, at))
        if found is None:
            cut = TRUNCATED if error.is_cut else INVALID_JSON
            return len(scan.text), len(scan.text), cut
        body, end = found.start(), found.end() if found[0] in self.closers else found.start()
        if body < error.at and end > body:
            body, end = yield from self._behind_fault(scan, body, end, error.at)
        return body, end, INVALID_JSON

    def _behind_fault(self, scan: Scan, body: int, end: int, fault: int) -> Generator[str, None, tuple[int, int]]:
        """Return start and end of the first closing mark after a fault; unchanged if a call begins before it."""
        at = end
        while True:
            found = self.marks.sure(scan.text, at) if scan.final else (yield from self.marks.seek(scan, at))
            if found is None or found[0] not in self.closers:
                return body, end
            if found.start() >= fault:
                return found.span()
            at = found.end()

    def _find_closer(self, scan: Scan, at: int) -> Generator[str, None, tuple[int, int] | None]:
        """Return start and end of the closing mark that follows, brackets and space between; None without one."""
        while True:
            at = SPACE(scan.text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            if at < len(scan.text) and scan.text[at] in "}]":
                at += 1
            elif (held := self._wait_at(scan, at)) is None:
                return next(((at, at + len(mark)) for mark in self.closers if scan.text.startswith(mark, at)), None)
            else:
                yield held

    def _wait_at(self, scan: Scan, at: int) -> str | None:
        """Return what to wait for if the text ends before it is certain whether a closing mark begins here."""
        rest = scan.text[at : at + self.marks.longest]
        is_open = not scan.final and at + len(rest) == len(scan.text)
        return "" if is_open and any(mark != rest and mark.startswith(rest) for mark in self.closers) else None


def broken_call_at(text: str, start: int, end: int, dead: int) -> Draft:
    """Build the draft of a call that stops being JSON at `dead`, like `broken_call` but without an error's cost."""
    reason = f"{text[dead]!r} is out of place, {dead - start} characters into the call"
    return Draft(start, end, INVALID_JSON, None, None, None, reason)


def broken_call(start: int, end: int, status: AttemptStatus, error: JsonError) -> Draft:
    """Build the draft of an unreadable call."""
    if status is TRUNCATED:
        return Draft(start, end, status, reason="the text ends inside the call")
    return Draft(start, end, status, reason=f"{error.reason}, {error.at - start} characters into the call")
