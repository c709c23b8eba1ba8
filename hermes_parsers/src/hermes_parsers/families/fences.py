"""Code fences that models put around calls which no mark opens: they are framing."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from hermes_parsers.engine.scan import Draft, sees, skip_space
from hermes_parsers.families.brackets import ListStream

FENCE: Final = "```"
FENCE_LINE: Final = rf"{FENCE}\w{{0,16}}+[ \t]*+\r?+\n[ \t\r\n]*+"
"""The line that opens a fence, up to what stands in it."""
CUT_FENCE_LINE: Final = rf"`{{1,2}}+\Z|{FENCE}\w{{0,16}}+[ \t]*+\r?+\Z"
_LINE: Final = re.compile(FENCE_LINE).match


class FencedListStream(ListStream):
    """Takes a fence with a list of calls, and the end of the fence just behind it, into the segment of the calls."""

    _fence = -1
    """Where the fence begins around the list that is read now."""

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        found = _LINE(self._scan.text, start)
        if found is None:
            return (yield from super()._block(told, start))
        self._fence = start
        end = yield from super()._block(told, found.end())
        self._fence = -1
        if end < 0:
            return end
        after = yield from skip_space(self._scan, end)
        if (yield from sees(self._scan, FENCE, after)):
            end = after + len(FENCE)
            self._spans[-1].end = self._base + end
        return end

    def _take(self, draft: Draft, told: int, start: int, *, is_first: bool) -> None:
        begin = self._fence if is_first and self._fence >= 0 else start
        super()._take(draft, told, begin, is_first=is_first)
