"""Reports what stands between a format's own marks where nothing in it could be read as a call.

Such a block was meant as a call, so that the model has to hear of it; as text it would end the rollout as an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from hermes_parsers.engine.scan import INVALID_JSON, Draft, Marks, Scan, Wait, sees, skip_space


def pairs_of(closers: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the openers that have a closing mark, and these; of a mapping that says "" where there is none."""
    closed = {opener: closer for opener, closer in closers.items() if opener and closer}
    return tuple(closed), tuple(dict.fromkeys(closed.values()))


class ClosedBlocks:
    """The marks that open and close the blocks of a format; any of the latter closes what any of the former opened."""

    __slots__ = ("_closers", "_marks", "_openers")

    def __init__(self, openers: tuple[str, ...], closers: tuple[str, ...]) -> None:
        self._openers = openers
        self._closers = closers
        self._marks = Marks((*openers, *closers))

    def read(self, scan: Scan, at: int) -> Wait:
        """Add the draft of a failed attempt and return where the block ends; -1 where no block opens, or none closes.

        Behind a second opening mark, a first one is text. Only where nothing stands between the two do both belong to
        the block; a third one does not, so that a run of marks is not looked through once for each.
        """
        opener = next((mark for mark in self._openers if scan.text.startswith(mark, at)), None)
        if opener is None:
            return -1
        body = yield from self._body(scan, at + len(opener))
        found = self._marks.sure(scan.text, body) if scan.final else (yield from self._marks.seek(scan, body))
        if found is None or found[0] in self._openers:
            return -1
        reason = unread_reason(opener, scan.text[body : found.start()].strip(), found[0])
        end = yield from self._after_closers(scan, found.end())
        scan.drafts.append(Draft(at, end, INVALID_JSON, reason=reason))
        return end

    def _body(self, scan: Scan, at: int) -> Wait:
        after = yield from skip_space(scan, at)
        for mark in self._openers:
            if (yield from sees(scan, mark, after)):
                return after + len(mark)
        return at

    def _after_closers(self, scan: Scan, end: int) -> Wait:
        """Return where the closing marks end that follow one another, like those of a call and of its section."""
        while True:
            after = yield from skip_space(scan, end)
            for mark in self._closers:
                if (yield from sees(scan, mark, after)):
                    end = after + len(mark)
                    break
            else:
                return end


def unread_reason(opener: str, body: str, closer: str) -> str:
    """Say what stands between two marks in place of a call."""
    if not body:
        return f"nothing stands between {opener} and {closer}"
    return f"what stands between {opener} and {closer} is no call: {body!r:.80}"
