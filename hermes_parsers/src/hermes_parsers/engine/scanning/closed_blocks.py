"""Report text between a format's marks that is not a call, alone or after a call.

It was meant as a call, so the model must get feedback; as plain text it would end the rollout as an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping

from hermes_parsers.engine.scanning.scan import INVALID_JSON, SPACE, Draft, Marks, Scan, Wait, sees, skip_space

Read = Callable[[Scan, int], Wait]
"""Reads the calls at a mark, or returns -1 if it cannot read any."""


def pairs_of(closers: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the openers that have a closing mark, and the closing marks, from a mapping with "" for none."""
    closed = {opener: closer for opener, closer in closers.items() if opener and closer}
    return tuple(closed), tuple(dict.fromkeys(closed.values()))


class ClosedBlocks:
    """The marks that open and close the blocks of a format; any closing mark closes any block.

    Exceptions: a section, which a mark before its first call opens, is closed only by a mark in `sections`; and `parts`
    close a part of a call, after which the closing mark of the call must follow.
    """

    __slots__ = ("_closers", "_follows", "_marks", "_openers", "_sections", "_wholes")

    def __init__(
        self,
        openers: tuple[str, ...],
        closers: tuple[str, ...],
        sections: tuple[str, ...] = (),
        parts: tuple[str, ...] = (),
    ) -> None:
        self._openers = openers
        self._closers = closers
        self._sections = sections
        self._wholes = tuple([mark for mark in closers if mark not in parts])
        self._marks = Marks((*openers, *closers))
        self._follows = re.compile(rf"[ \t\n\r]*+(?:{'|'.join(map(re.escape, closers))})").match

    def read(self, scan: Scan, at: int) -> Wait:
        """Add the draft of a failed attempt and return where the block ends; -1 where no block opens, or none closes.

        An opening mark before another one is text. Only if nothing stands between the two do both belong to the block;
        a third one does not, so that a run of marks is not searched once for each mark. Text between the mark of a
        section and that of its first call is an attempt. A mark between quotes is text.
        """
        opener = next((mark for mark in self._openers if scan.text.startswith(mark, at)), None)
        if opener is None:
            return -1
        body = yield from self._body(scan, at + len(opener))
        found = self._marks.sure(scan.text, body) if scan.final else (yield from self._marks.seek(scan, body))
        if found is None or scan.is_quoted(at, at + len(opener)):
            return -1
        if found[0] in self._openers:
            if not self._sections or opener == found[0] or body > at + len(opener):
                return -1
            reason = unread_reason(opener, scan.text[body : found.start()].strip(), found[0])
            scan.drafts.append(Draft(at, found.start(), INVALID_JSON, reason=reason))
            return found.start()
        reason = unread_reason(opener, scan.text[body : found.start()].strip(), found[0])
        end = yield from self._after_closers(scan, found.end())
        scan.drafts.append(Draft(at, end, INVALID_JSON, reason=reason))
        return end

    def second_opener(self, scan: Scan, at: int) -> Wait:
        """Return the place of a second copy of the opening mark that begins here, with only space between, or -1."""
        opener = next((mark for mark in self._openers if scan.text.startswith(mark, at)), None)
        if opener is None:
            return -1
        after = yield from skip_space(scan, at + len(opener))
        return after if (yield from sees(scan, opener, after)) else -1

    def is_left(self, scan: Scan, start: int, end: int) -> bool:
        """Whether `leave` has nothing to do after a block of calls, in text that has ended."""
        closing, _ = self._closing(scan.text, start)
        return not closing or (scan.text.endswith(closing, 0, end) and self._follows(scan.text, end) is None)

    def leave(self, scan: Scan, start: int, end: int, read: Read) -> Wait:
        """Return where a block ends that begins at `start` and whose calls are read up to `end`.

        `read` reads the calls in a section that follow other text.
        """
        closing, inner = self._closing(scan.text, start)
        return (yield from self.close(scan, end, closing, inner, read)) if closing else end

    def close(
        self, scan: Scan, end: int, closing: tuple[str, ...] = (), inner: str = "", read: Read | None = None
    ) -> Wait:
        """Return where a block ends whose calls are read up to `end`, after all its closing marks.

        A duplicate mark makes the last call `repaired`; the call is added before that is known, because its content is
        certain. Text between a call and the mark that closes the block is an attempt.
        """
        closing = closing or self._wholes
        is_over = scan.text.endswith(closing, 0, end)
        while True:
            after = yield from skip_space(scan, end)
            mark = yield from self._closer_at(scan, after)
            if mark is not None:
                if scan.text.endswith(mark, 0, end):
                    scan.drafts[-1].note_repeated(mark)
                end = after + len(mark)
            elif is_over or (rest := (yield from self._read_rest(scan, after, inner, read))) is None:
                return end
            else:
                end, is_over = rest
            is_over = is_over or scan.text.endswith(closing, 0, end)

    def _closing(self, text: str, start: int) -> tuple[tuple[str, ...], str]:
        """Return the closing marks of the block that begins here (or none) and a section's mark of calls (or "")."""
        opener = next((mark for mark in self._openers if text.startswith(mark, start)), None)
        if opener is None:
            return (), ""
        after = SPACE(text, start + len(opener)).end() if self._sections else start  # type: ignore[union-attr]  # the pattern matches everywhere
        inner = next((mark for mark in self._openers if mark != opener and text.startswith(mark, after)), "")
        return self._sections if inner else self._wholes, inner

    def _read_rest(
        self, scan: Scan, at: int, inner: str, read: Read | None
    ) -> Generator[str, None, tuple[int, bool] | None]:
        """Report the text before the next mark, and in a section read the call that the mark opens.

        Returns where that ends and whether the block is over; None if the block ended at its last call.
        """
        found = self._marks.sure(scan.text, at) if scan.final else (yield from self._marks.seek(scan, at))
        if found is None or (found[0] in self._openers and found[0] != inner):
            return None
        is_call = found[0] == inner
        end = found.start() if is_call else found.end()
        if at < found.start():
            rest = scan.text[at : found.start()].strip()
            reason = f"expected a call or {found[0]} after the call, got {rest!r:.80}"
            scan.drafts.append(Draft(at, end, INVALID_JSON, reason=reason))
        if read is None or not is_call:
            return end, False
        after = yield from read(scan, end)
        after = after if after >= 0 else (yield from self.read(scan, end))
        return (after, False) if after >= 0 else (end, True)

    def _body(self, scan: Scan, at: int) -> Wait:
        after = yield from skip_space(scan, at)
        for mark in self._openers:
            if (yield from sees(scan, mark, after)):
                return after + len(mark)
        return at

    def _after_closers(self, scan: Scan, end: int) -> Wait:
        """Return where consecutive closing marks end, such as those of a call and of its section."""
        while True:
            after = yield from skip_space(scan, end)
            mark = yield from self._closer_at(scan, after)
            if mark is None:
                return end
            end = after + len(mark)

    def _closer_at(self, scan: Scan, at: int) -> Generator[str, None, str | None]:
        for mark in self._closers:
            if (yield from sees(scan, mark, at)):
                return mark
        return None


def unread_reason(opener: str, body: str, closer: str) -> str:
    """Return the reason for an attempt whose marks contain no call."""
    if not body:
        return f"expected a call between {opener} and {closer}, got nothing"
    return f"expected a call between {opener} and {closer}, got {body!r:.80}"
