"""The input and output of a family's reader: text that may still grow, and the drafts of calls found in it.

A reader is a generator. It yields when it cannot decide without more text. It yields the mark that it needs for a
decision (the mark's last character wakes it), or "" to be woken by any text. When `Scan.final` is set it must decide,
and must not yield. The decision must not depend on where the text was cut, so a reader never looks at the end of the
text while `final` is not set.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.engine.scanning.quoted_marks import Quotes, is_between_quotes

Wait = Generator[str, None, int]
"""A reader: yields what it waits for, returns a position, or -1."""

SPACE: Final = re.compile(r"[ \t\n\r]*").match

# The statuses as module names: looking up a member on its enum costs as much as a whole draft (CPython 3.11).
OK: Final = AttemptStatus.OK
REPAIRED: Final = AttemptStatus.REPAIRED
UNCLOSED: Final = AttemptStatus.UNCLOSED
TRUNCATED: Final = AttemptStatus.TRUNCATED
INVALID_JSON: Final = AttemptStatus.INVALID_JSON
MISSING_NAME: Final = AttemptStatus.MISSING_NAME
UNKNOWN_TOOL: Final = AttemptStatus.UNKNOWN_TOOL
GOOD: Final = (OK, UNCLOSED, REPAIRED, UNKNOWN_TOOL)

_ASCII_NAME: Final = re.compile(r"[!#-&(-_a-~]").search
"""Finds a visible character that is not a quote."""
_QUOTES: Final = "\"'`\N{DOUBLE LOW-9 QUOTATION MARK}\N{SINGLE LOW-9 QUOTATION MARK}"
_FILLERS: Final = "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Letters and symbols that are blank when shown (Unicode's Default_Ignorable_Code_Point, and an empty Braille cell)."""
_BLANK: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Mn", "Me", "Zs", "Zl", "Zp", "Pi", "Pf"})
"""Unicode categories that are invisible, or not a name on their own: controls, spaces, combining marks, quotes."""

UNDECIDED: Final = -2
"""What `read_now` returns to leave a block to `read`."""


class Draft:
    """An attempt to call a tool, as found by a reader; positions are those of `Scan.text`."""

    __slots__ = ("arguments", "base", "call", "end", "id", "name", "reason", "start", "status", "value")

    base: int
    """Where the scan's text began in the source when the driver accepted the draft."""

    def __init__(  # noqa: PLR0917 - made once per call on the hot path, where keywords cost
        self,
        start: int,
        end: int,
        status: AttemptStatus = OK,
        name: str | None = None,
        arguments: str | None = None,
        value: Any = None,
        reason: str = "",
        id: str | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.status = status
        self.name = name
        self.arguments = arguments
        self.value = value
        self.reason = reason
        self.id = id
        self.call: int | None = None

    def fail(self, status: AttemptStatus, reason: str) -> Draft:
        """Mark this as not a call, with the reason; only the first failure counts."""
        if self.is_good:
            self.status, self.reason = status, reason
        return self

    def cut(self, reason: str) -> Draft:
        """Note that the closing mark is missing; a good call stays good."""
        if self.status is OK:
            self.status, self.reason = UNCLOSED, reason
        return self

    def put_in_reasoning(self) -> None:
        """Mark this as drafted in the reasoning, so it is not a call, even if it would be one elsewhere."""
        told = f" ({self.status.value}: {self.reason})" if self.reason else ""
        self.status, self.reason = AttemptStatus.IN_REASONING, f"drafted in the reasoning{told}"

    def follow_unclosed_reasoning(self) -> None:
        """Note that the reasoning before it is never closed; a good call stays good."""
        said = "the reasoning before it is never closed"
        if self.status is OK:
            self.status = UNCLOSED
        self.reason = f"{said}; {self.reason}" if self.reason else said

    def note_repeated(self, mark: str) -> None:
        """Note that its closing mark appears twice; a good call stays good."""
        said = f"the closing {mark} appears twice"
        if not self.is_good or said in self.reason:
            return
        if self.status is OK:
            self.status = REPAIRED
        self.reason = f"{self.reason}; {said}" if self.reason else said

    def check_name(self) -> Draft:
        """Fail a call whose name is not text, or blank. Checked here because it holds for every format."""
        name = self.name
        if type(name) is not str or not (_ASCII_NAME(name) or any(map(_names_something, name))):
            self.name = None
            self.fail(MISSING_NAME, "the call has no name")
        return self

    @property
    def is_good(self) -> bool:
        """Whether it counts as a call."""
        return self.status in GOOD


def _names_something(character: str) -> bool:
    """Whether a name may consist of this character: a visible one that is not a quote."""
    return character not in _QUOTES + _FILLERS and unicodedata.category(character) not in _BLANK


class Scan:
    """The undecided part of the text, with the drafts found in it."""

    __slots__ = ("drafts", "faults", "final", "follows_quote", "last_told", "lenient", "resume", "text", "tools")

    def __init__(self, *, lenient: bool = False, tools: Any = None) -> None:
        self.text = ""
        self.last_told = ""
        """The character before the text; "" where the source begins with it."""
        self.final = False
        self.faults = 0
        self.resume = 0
        """No block begins before this place; set by a reader that returns -1."""
        self.lenient = lenient
        self.tools = tools
        self.drafts: list[Draft] = []
        self.follows_quote: Callable[[int], bool] = lambda _: False
        """Whether a block that begins here is after a quote or in a code fence. Ask in ascending order."""

    def is_quoted(self, start: int, end: int) -> bool:
        """Whether a mark is between quotes, as in text that names it; the character after it must have arrived."""
        around = (self.text[start - 1] if start else self.last_told) + self.text[start : end + 1]
        return len(around) == end - start + 2 and is_between_quotes(around, 1, end - start + 1)

    def probe(self, text: str) -> Scan:
        """Return a scan of a complete text, to look at its content."""
        probe = Scan(lenient=self.lenient, tools=self.tools)
        probe.text, probe.final, probe.follows_quote = text, True, Quotes((text,)).has
        return probe


def skip_space(scan: Scan, at: int) -> Wait:
    """Return the position of the next character that is not white space, or the end of the final text."""
    at = SPACE(scan.text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
    while at == len(scan.text) and not scan.final:
        yield ""
        at = SPACE(scan.text, at).end()  # type: ignore[union-attr]  # as above
    return at


def sees(scan: Scan, mark: str, at: int) -> Generator[str, None, bool]:
    """Tell whether a mark begins here, waiting until that is certain."""
    while not scan.final and len(scan.text) - at < len(mark) and mark.startswith(scan.text[at:]):
        yield ""
    return scan.text.startswith(mark, at)


def seek(scan: Scan, mark: str, at: int) -> Wait:
    """Return the next place of a mark, or -1 if the text ends without it."""
    while (found := scan.text.find(mark, at)) < 0 and not scan.final:
        at = max(at, len(scan.text) - len(mark) + 1)
        yield mark[-1]
    return found


# Where a pattern of this package repeats a group possessively, the group is atomic: (?>...)*+, never (?:...)*+. After a
# plain group that failed half-way, Python 3.11.0 to 3.11.4 continue after the part that matched (CPython's gh-106052).


def cut(mark: str) -> str:
    """Return a pattern that matches at the end of the text, inside a mark or before it."""
    pattern = ""
    for character in reversed(mark[:-1]):
        pattern = f"(?>{re.escape(character)}{pattern})?+"
    return rf"{pattern}\Z"


_Find = Callable[..., "re.Match[str] | None"]


class Marks:
    r"""Several literal marks, found by one pass.

    `pattern` is a regular expression that is searched as well. `marks` that need a `body` are found only if it follows.
    `search` also finds matches that only more text can confirm (those with `\Z`); `sure` and `confirm` do not.
    """

    def __init__(
        self, marks: tuple[str, ...], pattern: str = "", *, body: str = "", tags: tuple[str, ...] = ()
    ) -> None:
        self._marks = sorted({*marks, *tags}, key=len, reverse=True)
        follow = f"(?={body})" if body else ""
        alternatives = [re.escape(mark) + (follow if mark in marks else "") for mark in self._marks]
        self._whole = "|".join([*alternatives, pattern] if pattern else alternatives)
        self.longest = max((len(mark) for mark in self._marks), default=1)

    # Each is compiled on first use, since parsing whole texts needs only one of them.

    @cached_property
    def search(self) -> _Find:
        """Finds the next mark, or the beginning of one at the end of the text."""
        return re.compile(self._whole).search

    @cached_property
    def begins(self) -> _Find:
        """Matches a mark, or the beginning of one at the end of the text."""
        return re.compile(self._whole).match

    @cached_property
    def sure(self) -> _Find:
        """Finds the next mark."""
        return self._sure.search

    @cached_property
    def confirm(self) -> _Find:
        """Matches a mark."""
        return self._sure.match

    @cached_property
    def _sure(self) -> re.Pattern[str]:
        return re.compile(self._whole.replace(r"\Z", r"(?!)"))

    @cached_property
    def partial(self) -> _Find:
        """Finds the beginning of a mark that fills the rest of the text."""
        prefixes = {mark[:size] for mark in self._marks for size in range(1, len(mark))}
        held = "|".join(re.escape(prefix) for prefix in sorted(prefixes, key=len, reverse=True))
        return re.compile(rf"(?:{held})?\Z" if held else r"\Z").search

    def partial_start(self, text: str, start: int) -> int:
        """Return where the tail of the text begins that could become a mark with more text."""
        found = self.partial(text, max(start, len(text) - self.longest + 1))
        assert found is not None
        return found.start()

    def seek(self, scan: Scan, at: int) -> Generator[str, None, re.Match[str] | None]:
        """Return the next mark, or None when the text ends without one."""
        while (found := self.search(scan.text, at)) is None and not scan.final:
            at = max(at, self.partial_start(scan.text, at))
            yield ""
        # A longer mark could still begin at the place of a complete shorter one.
        while found is not None and not scan.final and self.partial_start(scan.text, found.start()) == found.start():
            yield ""
            found = self.search(scan.text, at)
        return found
