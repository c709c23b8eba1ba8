"""JSON as some models write it: strings between special marks, keys without quotes; converted to JSON while it arrives.

`{city:<|"|>Paris<|"|>,days:3}` is Gemma 4's. The pass is linear and resumes where the text ended before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hermes_parsers.declarative.errors import fault
from hermes_parsers.engine.values.json_text import MAX_DEPTH

_PLAIN: Final = re.compile(r"[ \t\r\n:,]*")
_WORD: Final = re.compile(r"[\w.+\-$]+")


class Dialect(NamedTuple):
    """How a model's JSON differs from JSON."""

    delimiters: tuple[tuple[str, str], ...] = ()
    unquoted_keys: bool = False
    allows_text: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is standard JSON."""
        return not self.delimiters and not self.unquoted_keys


def json_dialect(place: str, arguments: Mapping[str, Any]) -> Dialect:
    """Read the arguments of content `json`.

    Raises:
        TemplateError: An argument is unknown or has the wrong type.
    """
    for key in arguments:
        if key not in ("string_delims", "unquoted_keys", "allow_non_json"):
            raise fault(place, "string_delims, unquoted_keys or allow_non_json", key)
    pairs = arguments.get("string_delims") or []
    if not isinstance(pairs, list | tuple) or not all(map(_is_pair, pairs)):
        raise fault(f"{place}.string_delims", "a list of pairs of texts", pairs)
    return Dialect(
        tuple((opening, closing) for opening, closing in pairs),
        bool(arguments.get("unquoted_keys")),
        bool(arguments.get("allow_non_json")),
    )


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(end, str) and end for end in pair)


class DialectReader:
    """Converts the value that begins at `at` to JSON; after `advance` returned True, `end` is its end or -1."""

    __slots__ = ("_dialect", "_expects_key", "_searched", "_stack", "at", "end", "reason", "written")

    def __init__(self, dialect: Dialect, at: int) -> None:
        self._dialect = dialect
        self._stack: list[str] = []
        self._expects_key = False
        self._searched = 0
        self.at = at
        self.end = -1
        self.reason = ""
        self.written: list[str] = []

    def advance(self, text: str, *, final: bool) -> bool:
        """Continue as far as the text is certain; return whether the value is complete or invalid."""
        while self.end < 0 and not self.reason:
            if not self._step(text, final=final):
                return False
        return True

    def _step(self, text: str, *, final: bool) -> bool:
        self._blank(text)
        at = self.at
        if at == len(text):
            return False
        for opening, closing in self._dialect.delimiters:
            if text.startswith(opening, at):
                return self._string(text, at + len(opening), closing)
            if not final and opening.startswith(text[at : at + len(opening)]) and len(text) - at < len(opening):
                return False
        char = text[at]
        if char == '"':
            return self._json_string(text)
        if char in "{[":
            self._open(char)
        elif char in "}]":
            self._close(char)
        else:
            return self._bare(text, final=final)
        return True

    def _blank(self, text: str) -> None:
        found = _PLAIN.match(text, self.at)
        assert found is not None
        if found.group():
            self.written.append(found.group())
            if "," in found.group():
                self._expects_key = bool(self._stack) and self._stack[-1] == "}"
            self.at = found.end()

    def _open(self, char: str) -> None:
        self._stack.append("}" if char == "{" else "]")
        self._expects_key = char == "{"
        self._write(char)
        if len(self._stack) > MAX_DEPTH:
            self.reason = "nested too deeply"

    def _close(self, char: str) -> None:
        if not self._stack or self._stack.pop() != char:
            self.reason = f"unexpected {char!r}"
            return
        self._write(char)
        if not self._stack:
            self.end = self.at

    def _write(self, char: str) -> None:
        self.written.append(char)
        self.at += 1

    def _string(self, text: str, start: int, closing: str) -> bool:
        end = text.find(closing, max(start, self._searched - len(closing)))
        if end < 0:
            self._searched = len(text)
            return False
        self.written.append(json.dumps(text[start:end], ensure_ascii=False))
        return self._pass(end + len(closing))

    def _json_string(self, text: str) -> bool:
        end = text.find('"', max(self.at + 1, self._searched))
        while end >= 0 and _is_escaped(text, end):
            end = text.find('"', end + 1)
        if end < 0:
            self._searched = len(text)
            return False
        self.written.append(text[self.at : end + 1])
        return self._pass(end + 1)

    def _bare(self, text: str, *, final: bool) -> bool:
        found = _WORD.match(text, self.at)
        if found is None:
            self.reason = f"unexpected {text[self.at]!r}"
            return True
        if found.end() == len(text) and not final:
            return False
        word = found.group()
        is_key = self._expects_key and self._dialect.unquoted_keys
        self.written.append(json.dumps(word, ensure_ascii=False) if is_key else word)
        return self._pass(found.end())

    def _pass(self, at: int) -> bool:
        """Continue after a string or a word, which is the whole value if no bracket is open."""
        self.at = at
        self._expects_key = False
        if not self._stack:
            self.end = at
        return True


def _is_escaped(text: str, at: int) -> bool:
    back = at - 1
    while text[back] == "\\":
        back -= 1
    return (at - back) % 2 == 0
