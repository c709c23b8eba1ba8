"""Read JSON in model output: values with their spans, by the standard library's C scanner.

Spans keep the source text: numbers, escapes and spacing of a call's arguments stay as the model wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from functools import cache
from math import isinf
from typing import Any, Final

from hermes_parsers.engine.scanning.scan import SPACE, Scan

MAX_DEPTH: Final = 128
"""Deeper nesting is refused: the C scanner recurses, and its limit depends on the caller's stack."""
WINDOW: Final = 1 << 14
"""Larger texts are read in parts of this size, because the error of a failed read counts the lines before it."""

FEW: Final = 8
"""After this many failed reads of a text, ends are found before reading: reading first only pays if it succeeds."""

Members = dict[str, tuple[Any, int, int]]
"""An object's members by key: the value, and where its text starts and ends."""


class JsonError(ValueError):
    """The text is not a JSON value.

    `at` is the place of the fault, `is_cut` says that the text ended inside, `start` is where the value began, `end`
    where its brackets balance (or -1), `opened` where the string began in which it ended (or -1).
    """

    def __init__(self, reason: str, at: int, *, is_cut: bool = False, start: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.is_cut = is_cut
        self.start = start

    end: int = -1
    opened: int = -1

    def string_in(self, text: str) -> int:
        """Return where the last string before the fault begins, or -1: from there on strings cannot be trusted."""
        if self.opened >= 0 or self.start < 0:
            return self.opened
        return _last_string(text, self.start, self.at)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


# The scanner inside `raw_decode`, without the wrapper, which takes a quarter of the time for a short value.
def _float(literal: str) -> float:
    value = float(literal)
    if isinf(value):
        raise ValueError(f"{literal[:40]} is out of range for a number")
    return value


_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse, parse_float=_float).scan_once  # type: ignore[attr-defined]  # typeshed knows only the wrapper


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Read the value that begins at `at`; return it and its end. Raises JsonError."""
    try:
        return _decode(text, at)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from None
    except StopIteration as error:
        raise JsonError("expected a JSON value", error.value) from None
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error) or "nested too deeply", at) from None


def members_at(text: str, at: int) -> tuple[Members, int]:
    """Read the object that begins at `at`; return its members with their spans, and its end. Raises JsonError."""
    try:
        return _members(text, at)
    except IndexError:
        raise JsonError("the text ends inside an object", len(text), is_cut=True) from None
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from None
    except StopIteration as error:
        raise JsonError("expected a JSON value", error.value) from None
    except RecursionError:
        raise JsonError("nested too deeply", at) from None
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(str(error), at) from None


def _members(text: str, at: int) -> tuple[Members, int]:
    found: Members = {}
    i = _space(text, at + 1)
    if text[i] == "}":
        return found, i + 1
    while True:
        if text[i] != '"':
            raise JsonError("expected a key in double quotes", i)
        key, i = _decode(text, i)
        if text[i] != ":":
            i = _space(text, i)
            if text[i] != ":":
                raise JsonError(f"expected ':' after the key {key!r}", i)
        start = _space(text, i + 1)
        value, i = _decode(text, start)
        found[key] = (value, start, i)
        if text[i] not in ",}":
            i = _space(text, i)
        if text[i] == "}":
            return found, i + 1
        if text[i] != ",":
            raise JsonError("expected ',' or '}'", i)
        i = _space(text, i + 1)


def _space(text: str, at: int) -> int:
    if text[at] not in " \t\n\r":
        return at
    return SPACE(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere


def read_members(scan: Scan, at: int) -> Generator[str, None, tuple[Members, int]]:
    """Read the object at `at`, waiting for its end. Raises JsonError if it is not one."""
    return _read(scan, at, members_at, _shift)


def read_value(scan: Scan, at: int) -> Generator[str, None, tuple[Any, int]]:
    """Read the object or array at `at`, waiting for its end. Raises JsonError if it is neither."""
    return _read(scan, at, value_at, lambda value, _: value)


def _read(
    scan: Scan, at: int, read: Callable[[str, int], tuple[Any, int]], shift: Callable[[Any, int], Any]
) -> Generator[str, None, tuple[Any, int]]:
    if scan.faults < FEW:
        piece, offset = window(scan.text, at)
        try:
            value, end = read(piece, at - offset)
        except JsonError:
            scan.faults += 1
        else:
            if is_shallow(piece, at - offset, end):
                return shift(value, offset), end + offset
    elif dead := dead_at_once(scan, at):
        raise out_of_place(scan.text, at, *dead)
    balance = Balance(at, keeps_lines=scan.lenient)
    while not balance.advance(scan.text):
        if scan.final:
            raise _fault(balance, scan.text)
        yield "}" if scan.text[at] == "{" else "]"
    if balance.end < 0:
        raise _fault(balance, scan.text)
    try:
        value, size = read(scan.text[at : balance.end], 0)
    except JsonError as error:
        error.at += at
        raise _locate_error(balance, error) from None
    return shift(value, at), at + size


def window(text: str, at: int) -> tuple[str, int]:
    """Return the part of a text to try first, and where it begins."""
    if len(text) <= WINDOW:
        return text, 0
    return text[at : at + WINDOW], at


def dead_at_once(scan: Scan, at: int) -> tuple[int, int] | None:
    """Return where the text stops being JSON, if that is before any closing bracket: a fast path for many faults.

    The bracket at `at` begins the value. The second place is the quote of a string that a line break cuts, or -1.
    """
    text = scan.text
    found = (_lenient_run() if scan.lenient else _strict_run())(text, at)
    dead, opened = found.end(), found.start(1)  # type: ignore[union-attr]  # it matches everywhere
    if opened < 0 and (
        dead == len(text) or (char := text[dead]) in '{}[]"' or (char in "tfn" and len(text) - dead < _LONGEST_WORD)
    ):
        return None
    return dead, opened


def out_of_place(text: str, at: int, dead: int, opened: int) -> JsonError:
    """Build the error of a value that begins at `at` from the result of `dead_at_once`."""
    error = JsonError(f"{text[dead]!r} is out of place", dead, start=at)
    error.opened = opened
    return error


def _fault(balance: Balance, text: str) -> JsonError:
    """Build the error for brackets that do not balance."""
    if balance.dead < 0 and balance.loose < 0:
        return _locate_error(balance, JsonError("the text ends inside the JSON", len(text), is_cut=True))
    if balance.dead < 0:
        balance.dead = balance.loose
    reason = "nested too deeply" if balance.depth > MAX_DEPTH else f"{text[balance.dead]!r} is out of place"
    return _locate_error(balance, JsonError(reason, balance.dead))


def _locate_error(balance: Balance, error: JsonError) -> JsonError:
    error.end = balance.end
    is_loose = 0 <= balance.loose == balance.dead
    error.start, error.opened = balance.start, -1 if is_loose else balance.opened
    return error


def is_shallow(text: str, at: int, end: int) -> bool:
    """Whether a value is nested at most as deep as accepted."""
    if text.count("{", at, end) + text.count("[", at, end) <= MAX_DEPTH:
        return True
    balance = Balance(at)
    balance.advance(text)
    return balance.end == end


def _shift(found: Members, by: int) -> Members:
    if not by:
        return found
    return {key: (value, start + by, end + by) for key, (value, start, end) in found.items()}


_PLAIN: Final = r"(?>[ \t\n\r:,0-9.+\-eE]++|true|false|null)*+"
_STRICT_BODY: Final = r'[^"\\\n]*+(?>\\[^\n][^"\\\n]*+)*+'
_LENIENT_BODY: Final = r'[^"\\]*+(?>\\.[^"\\]*+)*+'


def _tokens(body: str) -> str:
    """Match the text that may stand between two brackets; possessive throughout, so there is no backtracking."""
    return rf'{_PLAIN}(?>"{body}"{_PLAIN})*+'


_Match = Callable[[str, int], re.Match[str] | None]


# Compiled at the first fault, since most texts have none.
@cache
def _strict() -> _Match:
    return re.compile(_tokens(_STRICT_BODY), re.DOTALL).match


@cache
def _lenient() -> _Match:
    return re.compile(_tokens(_LENIENT_BODY), re.DOTALL).match


@cache
def _strict_run() -> _Match:
    return _run(_STRICT_BODY, rf'("){_STRICT_BODY}\\?+(?=\n)')


@cache
def _lenient_run() -> _Match:
    return _run(_LENIENT_BODY, '("(?!))')


def _run(body: str, cut: str) -> _Match:
    """Compile opening brackets and the text between; the group is the quote of a string that a line break cuts."""
    return re.compile(rf"(?>[{{\[]{_tokens(body)}){{0,{MAX_DEPTH}}}+(?>{cut})?+", re.DOTALL).match


_WORDS: Final = ("true", "false", "null")
_LONGEST_WORD: Final = 5


class Balance:
    """Finds where a JSON object or array ends in growing text; each character is read at most twice.

    After `advance` has returned True, `end` is its end, or -1 if it stopped being JSON at `dead`. `opened` is where an
    unterminated string began, `loose` the first object without a comma before it. Unless `keeps_lines`, a raw newline
    in a string is invalid, as in the JSON standard.
    """

    __slots__ = ("_in_string", "_keeps_lines", "_skip", "at", "dead", "depth", "end", "loose", "opened", "start")

    def __init__(self, at: int, *, keeps_lines: bool = False) -> None:
        self.start = self.at = at
        self.depth = 0
        self.opened = -1
        self.end = -1
        self.dead = -1
        self.loose = -1
        self._in_string = False
        self._keeps_lines = keeps_lines
        self._skip = _lenient() if keeps_lines else _strict()

    def advance(self, text: str) -> bool:
        """Continue to the end of the text so far; return whether it is decided."""
        while self.end < 0:
            if self._in_string and not self._leave_string(text):
                return self.dead >= 0
            at = self._skip(text, self.at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            if at == len(text):
                self.at = at
                return False
            char = text[at]
            self.at = at + 1
            if char in "{[":
                self.depth += 1
                if self.depth > MAX_DEPTH or (char == "{" and self._is_dead(text, at)):
                    self.dead = at if self.depth > MAX_DEPTH else self.loose
                    return True
            elif char in "}]":
                self.depth -= 1
                if not self.depth:
                    self.end = at + 1
            elif char == '"':
                self._in_string = True
                self.opened = at
            elif (
                char in "tfn"
                and len(text) - at < _LONGEST_WORD
                and any(word.startswith(text[at : at + 5]) for word in _WORDS)
            ):
                self.at = at  # cut inside the word
                return False
            else:
                self.dead = at
                return True
        return True

    def _is_dead(self, text: str, at: int) -> bool:
        """Whether the object at `at` shows that this is not JSON: it is the second one without a comma before it."""
        if at == self.start or not _is_loose(text, at):
            return False
        if self.loose >= 0:
            return True
        self.loose = at
        return False

    def _leave_string(self, text: str) -> bool:
        found = text.find('"', self.at)
        while found >= 0 and _is_escaped(text, found):
            found = text.find('"', found + 1)
        stop = len(text) if found < 0 else found
        if not self._keeps_lines and (line := text.find("\n", self.at, stop)) >= 0:
            self.dead = line
            return False
        if found >= 0:
            self._in_string, self.opened = False, -1
        self.at = stop if found < 0 else found + 1
        return found >= 0


def _last_string(text: str, start: int, end: int) -> int:
    """Return where the last complete string before a place begins, or -1."""
    quote = text.rfind('"', start, end)
    opening = text.rfind('"', start, max(start, quote))
    while opening > start and _is_escaped(text, opening):
        opening = text.rfind('"', start, opening)
    return opening


def _is_loose(text: str, at: int) -> bool:
    """Whether there is no comma, colon or opening bracket before this place."""
    at -= 1
    while text[at] in " \t\n\r":
        at -= 1
    return text[at] not in "{[,:"


def _is_escaped(text: str, at: int) -> bool:
    back = at - 1
    while text[back] == "\\":
        back -= 1
    return (at - back) % 2 == 0
