"""Brackets: surplus closing ones that models write, and opening ones that also occur in code."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_core.contracts.parsing import ParseMode, ToolSchema
from hermes_parsers.engine.scanning.scan import INVALID_JSON, REPAIRED, SPACE, Draft, Scan, Wait
from hermes_parsers.engine.scanning.spans import Span
from hermes_parsers.engine.scanning.stream import ScanStream

if TYPE_CHECKING:
    from hermes_parsers.engine.scanning.parser import ScanningParser

_NEAR: Final = 80
"""The maximum number of spaces between a list and the text that shows it is code."""
# ASCII only: other scripts have no space between words and a call. A quote may be a stray one in prose.
_CODE_BEFORE: Final = re.compile(r"[A-Za-z0-9_)\]=]\Z|=[ \t]+\Z")
_EXTRA: Final = re.compile(r"((?>[ \t\n\r]*+[}\]])*+)[ \t\n\r]*+").match
_OPERATOR: Final = r"[ \t]*+(?:if(?!\w)|[+/%&=]|!=|\*(?!\*))"
_BEHIND_CALL: Final = re.compile(rf"[ \t]*+(?:[.\[(]|for(?!\w))|{_OPERATOR}")
_BEHIND_LIST: Final = re.compile(rf"\.[A-Za-z_]|\[[ \t]*+[-:0-9'\"]|\(|:|{_OPERATOR}")
_CUT_BEHIND: Final = re.compile(r"[ \t]*+(?:fo?r?|if?|!|\*)?\Z|\.\Z|\[[ \t]*+\Z")


def pass_run(scan: Scan, run: re.Pattern[str], at: int) -> Wait:
    """Return where a run of characters ends, waiting while it may continue; the pattern matches everywhere."""
    while (end := run.match(scan.text, at).end()) == len(scan.text) and not scan.final:  # type: ignore[union-attr]  # see above
        yield ""
    return end


def judge_extra(scan: Scan, draft: Draft) -> None:
    """Set the status of a call that surplus brackets follow."""
    if scan.lenient:
        draft.fail(REPAIRED, "repaired: extra closing brackets")
    else:
        draft.fail(INVALID_JSON, "closing brackets follow the call")


def take_extra(scan: Scan, draft: Draft) -> Generator[str, None, None]:
    """Consume surplus closing brackets after a call that no mark closes."""
    while True:
        found = _EXTRA(scan.text, draft.end)
        assert found is not None
        if found[1]:
            draft.end = found.end(1)
            judge_extra(scan, draft)
        if scan.final or found.end() < len(scan.text):
            return
        yield ""


def is_sure_end(text: str, at: int, *, is_all: bool) -> bool:
    """Whether text after a call shows that its brackets belong there; at the end of the text, only if it is all."""
    found = SPACE(text, at)
    after = at if found is None else found.end()
    return is_all if after == len(text) else text[after] not in "}]"


class ListScan(Scan):
    """A scan that also knows the text it has already emitted."""

    __slots__ = ("begin", "spans", "told")

    def __init__(self, spans: list[Span], *, lenient: bool, tools: Sequence[ToolSchema] | None) -> None:
        super().__init__(lenient=lenient, tools=tools)
        self.spans = spans
        self.told = self.begin = 0

    @property
    def is_blank(self) -> bool:
        """Whether there is only space between the emitted text and the list."""
        return SPACE(self.text, self.told).end() >= self.begin  # type: ignore[union-attr]  # the pattern matches everywhere

    @property
    def is_alone(self) -> bool:
        """Whether there is only reasoning before the list."""
        return self.is_blank and all(span.kind == "reasoning" for span in self.spans)

    @property
    def before(self) -> str:
        """The text just before the list, unless it is a call."""
        before = self.text[max(self.told, self.begin - _NEAR) : self.begin]
        is_told = self.told == 0 and self.begin < _NEAR and self.spans and self.spans[-1].kind == "text"
        return self.last_told + before if is_told and self.is_blank else before


class ListStream(ScanStream):
    """The driver of formats in which the text around a list distinguishes it from code."""

    own_blocks: ClassVar[bool] = True

    def __init__(self, parser: ScanningParser, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        super().__init__(parser, tools, mode)
        self._scan: ListScan = ListScan(self._spans, lenient=mode == "lenient", tools=tools)

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        scan = self._scan
        scan.told, scan.begin = told, start
        if not scan.final:
            return (yield from super()._block(told, start))
        first = len(scan.drafts)
        end = self._parser.read_now(scan, start)
        if not self._parser.is_left(scan, start, end):
            end = yield from self._parser.read_block(scan, start, end)
        return self._take_all(first, told, start, end)


def is_code_before(scan: Scan, at: int) -> bool:
    """Whether the text before a list makes it an index or the value of a variable."""
    before = scan.before if isinstance(scan, ListScan) else scan.text[max(0, at - _NEAR) : at]
    return _CODE_BEFORE.search(before) is not None


def is_code_behind(scan: Scan, at: int, *, is_list: bool) -> Generator[str, None, bool]:
    """Whether an expression continues after a call or a list."""
    while not scan.final and _CUT_BEHIND.match(scan.text, at):
        yield ""
    return goes_on_behind(scan.text, at, is_list=is_list)


def goes_on_behind(text: str, at: int, *, is_list: bool) -> bool:
    """Whether an expression continues after a call or a list, in a complete text."""
    return (_BEHIND_LIST if is_list else _BEHIND_CALL).match(text, at) is not None


def is_whole(scan: Scan, start: int, end: int) -> Generator[str, None, bool]:
    """Whether the text is only a list, apart from reasoning."""
    is_alone = scan.is_alone if isinstance(scan, ListScan) else not scan.text[:start].strip()
    if not is_alone:
        return False
    while (after := SPACE(scan.text, end).end()) == len(scan.text) and not scan.final:  # type: ignore[union-attr]  # see above
        yield ""
        end = after
    return after == len(scan.text)
