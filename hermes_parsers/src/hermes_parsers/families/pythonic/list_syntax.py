"""The text around the calls of a list: brackets of nested lists, items that are not calls, a second end."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from hermes_parsers.engine.scanning.scan import INVALID_JSON, REPAIRED, Draft, Scan, cut
from hermes_parsers.families.framing.brackets import is_code_before
from hermes_parsers.families.pythonic.call_syntax import ARGUMENTS_OPEN, KEYWORD, NAME, SPACES

CUT_ARGUMENTS: Final = rf"\((?:{SPACES}(?:{KEYWORD}{SPACES}=?)?)?\Z"
_LISTS: Final = rf"\[{SPACES}(?>\[{SPACES}){{0,15}}+"
BARE: Final = rf"{_LISTS}(?={NAME}{ARGUMENTS_OPEN})"
CUT_BARE: Final = rf"{_LISTS}(?:{NAME}(?:{CUT_ARGUMENTS})?)?\Z"
_TAG: Final = "<|python_tag|>"
TAGGED: Final = rf"{re.escape(_TAG)}{SPACES}"
CUT_TAGGED: Final = rf"<{cut(_TAG[1:])}|{TAGGED}(?:{CUT_BARE}|\Z)"

FURTHER: Final = (
    re.compile(rf"{SPACES}[,;]?+{SPACES}(?={BARE})").match,
    re.compile(rf"{SPACES}(?:\Z|[,;]?+{SPACES}(?:\Z|{CUT_BARE}))").match,
)
"""The text before another list in a fence, and the end of the text inside that."""

_CLOSED: Final = rf"(?>\]{SPACES})*+"
_OPENED: Final = rf"(?>\[{SPACES})*+"
_IS_CALL: Final = re.compile(rf"{NAME}{ARGUMENTS_OPEN}").match
_CUT_JOIN: Final = rf"{_CLOSED}(?:,{SPACES}{_OPENED}({NAME})?(?:{CUT_ARGUMENTS})?)?\Z"

_DOUBLE: Final = r'"(?>[^"\\\r\n]++|\\.)*+'
_SINGLE: Final = r"'(?>[^'\\\r\n]++|\\.)*+"
_NUMBER: Final = r"[+-]?+\.?+[0-9][\w.+-]*+"
_WORD: Final = r"[^\[\](){}'\",\r\n]{1,80}+"
_LITERAL: Final = (
    rf"{_DOUBLE}\"|{_SINGLE}'|{_NUMBER}|(?:True|False|None|true|false|null)\b|\{{[^{{}}]*+\}}|\[{SPACES}\]"
)
_BEFORE_ITEM: Final = rf"{SPACES}{_CLOSED},{SPACES}(?>\[(?!{SPACES}\]){SPACES})*+"
_ENDS: Final = rf"(?={SPACES}[,\]])"
_ITEM: Final = re.compile(rf"{_BEFORE_ITEM}({_LITERAL}){_ENDS}").match
_ANY_ITEM: Final = re.compile(rf"{_BEFORE_ITEM}({_LITERAL}|{_WORD}){_ENDS}").match
_CUT_ITEM: Final = re.compile(
    rf"{_BEFORE_ITEM}(?>{_DOUBLE}\\?+\"?+|{_SINGLE}\\?+'?+|{_WORD}|\{{[^{{}}]*+\}}?+|\[{SPACES}\]?+)?+{SPACES}\Z"
).match

_REST: Final = rf"(?>[^\[\r\n()]++|\([^()\r\n]*+\)|\)(?!{SPACES}\])|\[(?!{SPACES}{NAME}{ARGUMENTS_OPEN}))*+"
_ENDS_AGAIN: Final = re.compile(rf"({_REST})\){SPACES}\]").match
_CUT_REST: Final = re.compile(rf"{_REST}(?:\([^()\r\n]*+|\){SPACES})?\Z").match


Follow = tuple[str, int]
"""The kind and place of the text after a call: the "next" one, the "end" of the list, a list left "open" by a missing
mark, the end of the text ("cut", or "begun" inside a name), or "junk".
"""


class Following:
    """Tells what follows a call of a list, where `depth` lists are open.

    Nested lists are read if no mark has to close them; two lists with a comma between count as one.
    """

    __slots__ = ("_cut_mark", "_cut_next", "_end", "_needs_closer", "_next")

    def __init__(self, separator: str, closer: str, *, needs_closer: bool) -> None:
        self._needs_closer = needs_closer
        mark = re.escape(closer) or "(?!)"
        closed, opened, more = ("", "", "") if needs_closer else (_CLOSED, _OPENED, rf"(?>{SPACES}\])*+")
        cut_next = rf"(?:{separator}{SPACES}({NAME})?|,{SPACES})?\Z" if needs_closer else _CUT_JOIN
        self._next = re.compile(rf"{SPACES}{closed}{separator}{SPACES}{opened}(?={NAME}\()").match
        self._end = re.compile(rf"{SPACES}(?:,?+{SPACES}\]{more}(?>{SPACES}({mark}))?+|({mark}))").match
        self._cut_next = re.compile(SPACES + cut_next).match
        self._cut_mark = re.compile(SPACES + cut(closer) if closer else "(?!)").match

    def wait(self, scan: Scan, at: int, depth: int) -> Generator[str, None, Follow]:
        """Tell what follows a call, in text that grows."""
        while (follow := self.tell(scan, at, depth)) is None:
            yield ""
        return follow

    def tell(self, scan: Scan, at: int, depth: int) -> Follow | None:
        """Tell what follows a call; None if that needs more text."""
        found = self._next(scan.text, at)
        if found and (self._needs_closer or _is_joined(scan.text, found, depth)):
            return "next", found.end()
        if not (self._needs_closer or scan.final) and self._cut_next(scan.text, at):
            return None
        if (found := self._end(scan.text, at)) is None:
            return self._tell_cut(scan, at)
        end = found.end()
        if found[2] is not None:
            return "open" if depth else "end", end
        if found[1] is None and not scan.final and self._cut_mark(scan.text, end):
            return None
        return "open" if self._needs_closer and found[1] is None else "end", end

    def _tell_cut(self, scan: Scan, at: int) -> Follow | None:
        last = self._cut_next(scan.text, at)
        if not scan.final:
            return None if last or self._cut_mark(scan.text, at) else ("junk", at)
        if last is None:
            return "junk", at
        return ("begun", last.start(1)) if last[1] else ("cut", len(scan.text))


def _is_joined(text: str, found: re.Match[str], depth: int) -> bool:
    """Whether the text before a call leaves a list open, or opens another one right after it."""
    left = depth - found[0].count("]")
    return left > 0 or (not left and "[" in found[0] and _IS_CALL(text, found.end()) is not None)


def is_code(scan: Scan, at: int, first: int) -> bool:
    """Whether the text before a list makes it code; then no list begins before its first call."""
    if not is_code_before(scan, at):
        return False
    scan.resume = first
    return True


def lists_opened(between: str) -> int:
    """Return how many more lists are open after the text between two items than before it."""
    return between.count("[") - between.count("]")


def read_item(scan: Scan, at: int, depth: int, *, words: bool) -> Generator[str, None, Draft | None]:
    """Read text after an item of a list that is not a call; it may be a word of code only if `words` is set."""
    while not scan.final and _CUT_ITEM(scan.text, at):
        yield ""
    found = (_ANY_ITEM if words else _ITEM)(scan.text, at)
    if found is None or depth <= scan.text.count("]", at, found.start(1)):
        return None
    return Draft(found.start(1), found.end(), INVALID_JSON, reason=f"expected a call, got {found[1]!r:.80}")


def second_end(text: str, at: int) -> int:
    """Return the place of a second end of a call and its list after the end of a list, with quotes before it, or -1.

    It is on the same line and before any other list: then a quote in a string may have ended the first one too early.
    """
    found = _ENDS_AGAIN(text, at)
    return found.end() if found and ("'" in found[1] or '"' in found[1]) else -1


def wait_for_second_end(scan: Scan, at: int) -> Generator[str, None, int]:
    """Return the place of a second end, like `second_end`, in growing text."""
    while not scan.final and _CUT_REST(scan.text, at):
        yield ""
    return second_end(scan.text, at)


def cut_short(draft: Draft, reason: str) -> None:
    """Note that the closing mark is missing, in addition to the notes of a good call."""
    told = f"; {draft.reason}" if draft.reason else ""
    draft.cut(reason + told)


def judge_depth(draft: Draft, depth: int) -> None:
    """Note at the last call that lists are still open after it, or that there are surplus closing brackets."""
    if depth > 0:
        cut_short(draft, "the list is not closed")
    elif depth < 0:
        draft.fail(REPAIRED, "repaired: extra closing brackets")
