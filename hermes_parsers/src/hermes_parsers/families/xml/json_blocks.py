"""Read the text after a JSON call up to its block's closing mark, in families that also write calls in tags."""

from __future__ import annotations

from functools import lru_cache

from hermes_parsers.engine.scanning.scan import INVALID_JSON, Draft, Marks, Scan, Wait, sees, skip_space

_marks = lru_cache(maxsize=16)(Marks)


def read_leftovers(scan: Scan, end: int, openers: tuple[str, ...], closers: tuple[str, ...]) -> Wait:
    """Return where the block of a call ends; report text before its closing mark."""
    found = yield from _marks((*openers, *closers)).seek(scan, end)
    if found is None or found[0] in openers:
        return end
    between = scan.text[end : found.start()].strip()
    if between:
        reason = f"expected a call or {found[0]} after the call, got {between!r:.80}"
        scan.drafts.append(Draft(end, found.end(), INVALID_JSON, reason=reason))
    return (yield from pass_closers(scan, found.end(), closers))


def pass_closers(scan: Scan, end: int, closers: tuple[str, ...]) -> Wait:
    """Return where duplicate closing marks end."""
    while True:
        after = yield from skip_space(scan, end)
        for mark in closers:
            if (yield from sees(scan, mark, after)):
                end = after + len(mark)
                break
        else:
            return end
