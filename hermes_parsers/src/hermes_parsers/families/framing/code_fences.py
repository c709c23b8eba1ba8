"""Code fences that models put around calls without marks: they are framing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hermes_parsers.engine.scanning.scan import Draft, Scan, Wait, sees, skip_space

FENCE: Final = "```"
FENCE_LINE: Final = rf"{FENCE}\w{{0,16}}+[ \t]*+\r?+\n[ \t\r\n]*+"
"""The line that opens a fence, up to the fence's content."""
CUT_FENCE_LINE: Final = rf"`{{1,2}}+\Z|{FENCE}\w{{0,16}}+[ \t]*+\r?+\Z"
fence_line: Final = re.compile(FENCE_LINE).match

_Match = Callable[[str, int], "re.Match[str] | None"]


def read_fenced(
    scan: Scan, start: int, body: int, read: Callable[[int, list[Draft]], Wait], following: tuple[_Match, _Match]
) -> Wait:
    """Read the calls that fill a fence; -1 if it contains anything else, so both its lines are text.

    Args:
        scan: Of the text.
        start: Where the fence begins.
        body: Where the first calls begin.
        read: Reads calls at a place, adds them to a list, and returns where they end, or -1.
        following: Match the text before further calls, and the end of the text inside that.
    """
    drafts = list[Draft]()
    is_next, is_cut = following
    end = yield from read(body, drafts)
    while end >= 0:
        after = yield from skip_space(scan, end)
        is_closed = yield from sees(scan, FENCE, after)
        if is_closed or after == len(scan.text):
            end = after + len(FENCE) if is_closed else end
            drafts[0].start, drafts[-1].end = start, end
            scan.drafts += drafts
            return end
        while not (found := is_next(scan.text, end)) and not scan.final and is_cut(scan.text, end):
            yield ""
        end = (yield from read(found.end(), drafts)) if found else -1
    if drafts:
        # The content of the fence is read again, without the fence.
        scan.resume = body
    return -1
