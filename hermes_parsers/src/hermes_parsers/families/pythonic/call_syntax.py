"""One call written as Python, `name(keyword=literal, …)`: its arguments, and where it ends if they cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from hermes_parsers.engine.scanning.scan import OK, SPACE, Draft
from hermes_parsers.engine.values.declared_texts import declared_parameters, is_text, read_declared
from hermes_parsers.engine.values.quoted_strings import LiteralError, Repairs, read_python_string

# Every repetition is possessive, so no text is read twice.
SPACES: Final = r"[ \t\r\n]*+"
NAME: Final = r"\w[\w.-]*+"
KEYWORD: Final = r"[^\W\d][\w.-]*+"
ARGUMENTS_OPEN: Final = rf"\({SPACES}(?:\)|{KEYWORD}{SPACES}=[^=])"
"""What distinguishes a call from other code: no arguments, or a keyword before the first one."""

_OPEN: Final = re.compile(rf"({NAME})\(")
_BEGINNING: Final = re.compile(rf"{SPACES}(?:({KEYWORD}){SPACES}=(?!=){SPACES}|\))")
"""The beginning of an argument, or the end of the call."""
_CUT_KEYWORD: Final = re.compile(rf"(?:{KEYWORD}{SPACES})?\Z")
_NO_SPACE: Final = rf"{SPACES}[^ \t\r\n]"
_PLAIN: Final = re.compile(
    rf"{SPACES}({KEYWORD}){SPACES}=(?!=){SPACES}"
    rf"""(?:'([^']*+)'{_NO_SPACE}|"([^"]*+)"{_NO_SPACE}"""
    rf"|(?:(-?+(?:0|[1-9][0-9]{{0,999}}+))(?>(\.[0-9]++))?+|(True|False|None|true|false|null)){SPACES}[,)])"
)
"""A complete simple argument that needs no further checks, with the text after it."""
_NOT_PLAIN: Final = frozenset("'\"]}")
_STRING_KIND: Final = 3
_NUMBER: Final = 4
_FRACTION: Final = 5
_WORDS: Final = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_QUOTES: Final = frozenset("'\"")
_EMPTY: Final = frozenset({"''", '""'})
_EXTRA: Final = re.compile(r"[\]} \t\r\n]*+")


_INTEGER: Final = r"(?:0|-?+[1-9][0-9]{0,999}+)"
_TEXT: Final = r"""[^'"\\\x00-\x1f]*+"""
_ITEM: Final = rf"""(?:'{_TEXT}'|"{_TEXT}"|{_INTEGER})"""
_JSON_ITEM: Final = rf'(?:"{_TEXT}"|{_INTEGER})'
_JSON: Final = rf'"[^"]*+"|true|false|null|{_INTEGER}(?!\.)|\[(?>{_JSON_ITEM}(?>,[ ]{_JSON_ITEM})*+)?+\]'
_OTHER: Final = rf"'[^']*+'|True|False|None|{_INTEGER}(?>\.[0-9]++)?+|\[(?>{_ITEM}(?>,[ ]{_ITEM})*+)?+\]"
_PAIR: Final = rf"{KEYWORD}=(?:{_JSON}|{_OTHER})"
_TIDY_CALL: Final = re.compile(rf"({NAME})\(((?>{_PAIR}(?>,[ ]{_PAIR})*+)?+)\)")
_TIDY_ARGUMENT: Final = re.compile(rf"({KEYWORD})=(?:({_JSON})|({_OTHER}))")
_MEMBER: Final = {"True": "true", "False": "false", "None": "null"}


def read_tidy_call(text: str, start: int, at: int) -> Draft | None:
    """Read a call written like the template's, mostly with the C decoder; None leaves it to the slow path.

    The draft begins at `start`; its arguments are exactly what `dumps` writes.
    """
    found = _TIDY_CALL.match(text, at)
    if found is None:
        return None
    written = found[2]
    if "\\" in written:
        return None
    members = [f'"{key}": {same or _as_json(other)}' for key, same, other in _TIDY_ARGUMENT.findall(written)]
    written = f"{{{', '.join(members)}}}"
    try:
        values, end = _decode(written, 0)
        if not written.isascii():
            # Lone surrogates cannot be written this way.
            written.encode()
    except ValueError:
        return None
    if len(values) != len(members) or end != len(written):
        return None
    return Draft(start, found.end(), OK, found[1], written, values)


def _as_json(value: str) -> str:
    first = value[0]
    if first == "'":
        # A double quote in it makes this invalid JSON, which the decoder reports.
        return f'"{value[1:-1]}"'
    if first == "[":
        return value.replace(_SINGLE, _DOUBLE)
    return repr(float(value)) if "." in value else _MEMBER[value]


_SINGLE: Final = "'"
_DOUBLE: Final = '"'
_decode: Final = json.JSONDecoder().raw_decode


class PythonCall:
    """A call whose arguments begin at `opened`; `values` grows while `advance` moves `at` past its parenthesis."""

    __slots__ = ("at", "name", "notes", "opened", "repairs", "repeated", "schemas", "values")

    def __init__(self, text: str, start: int, tools: Any = None) -> None:
        found = _OPEN.match(text, start)
        assert found is not None
        self.name = found[1]
        self.at = self.opened = found.end()
        self.values: dict[str, Any] = {}
        self.repairs: Repairs = {}
        self.repeated: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.schemas = declared_parameters(tools, self.name)

    def advance(self, text: str, *, lenient: bool = False) -> LiteralError | None:
        """Read arguments to the end of the call; return the error, which more text may remove."""
        try:
            self._read_arguments(text, lenient=lenient)
        except LiteralError as error:
            return error
        return None

    def _read_arguments(self, text: str, *, lenient: bool) -> None:
        plain, values, schemas = _PLAIN.match, self.values, self.schemas
        while True:
            found = plain(text, self.at)
            kind = found.lastindex or 0 if found else 0
            behind = text[found.end() - 1] if found else ""
            if (
                found is None
                or (kind <= _STRING_KIND and ("\\" in found[kind] or behind in _NOT_PLAIN))
                or (kind > _STRING_KIND and schemas and is_text(schemas.get(found[1])))
            ):
                if self._read_argument(text, lenient=lenient):
                    return
                continue
            if behind not in ",)":
                raise LiteralError(f"expected ',' or ')', got {behind!r}", found.end() - 1)
            if found[1] in values:
                self.repeated[found[1]] = None
            if kind <= _STRING_KIND:
                values[found[1]] = found[kind]
            elif kind == _NUMBER:
                values[found[1]] = int(found[kind])
            elif kind == _FRACTION:
                values[found[1]] = float(found[_NUMBER] + found[_FRACTION])
            else:
                values[found[1]] = _WORDS[found[kind]]
            self.at = found.end()
            if behind == ")":
                return

    def _read_argument(self, text: str, *, lenient: bool) -> bool:
        """Read one argument of any kind, or the end of the call; return whether it was the end."""
        found = _BEGINNING.match(text, self.at)
        if found is None:
            at = _skip(text, self.at)
            cut = _CUT_KEYWORD.match(text, at) is not None
            raise LiteralError(f"expected keyword=value, got {text[at : at + 1]!r}", at, is_truncated=cut)
        at, end = found.end(), len(text)
        if found[1] is None:
            self.at = at
            return True
        # Noted for the call only if the argument is complete, since more text may change it.
        repairs: Repairs = {}
        notes: dict[str, None] = {}
        if text[at : at + 1] in _QUOTES:
            value, after = read_python_string(text, at, end)
        else:
            schema, noted = self.schemas.get(found[1]), repairs if lenient else None
            value, after = read_declared(text, at, end, schema, repairs=noted, notes=notes)
        after = _skip(text, after)
        if lenient and text[after : after + 1] in {"]", "}"}:
            after = _EXTRA.match(text, after).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            repairs["extra closing brackets"] = None
        if after == end:
            raise LiteralError("the text ends inside a call", end, is_truncated=True)
        if text[after] not in ",)":
            raise LiteralError(f"expected ',' or ')', got {text[after]!r}", after)
        if found[1] in self.values:
            self.repeated[found[1]] = None
        self.values[found[1]] = value
        self.repairs |= repairs
        self.notes |= notes
        self.at = after + 1
        return text[after] == ")"


def _skip(text: str, at: int) -> int:
    return SPACE(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere


_STRING: Final = (
    r"'''(?>[^'\\]++|\\.|'(?!''))*+'''|'(?!'')(?>[^'\\]++|\\.)*+'"
    r'|"""(?>[^"\\]++|\\.|"(?!""))*+"""|"(?!"")(?>[^"\\]++|\\.)*+"'
)
_OPENER_OF: Final = {")": "(", "]": "[", "}": "{"}
_MAX_DEPTH: Final = 8


@lru_cache(maxsize=16)
def _tokens(closer: str) -> Callable[[str, int, int], Iterator[re.Match[str]]]:
    mark = f"{re.escape(closer)}|" if closer else ""
    return re.compile(rf"{mark}{_STRING}|[()\[\]{{}}'\"]", re.DOTALL).finditer


class Ahead:
    """Finds the next place of a mark without searching the same text again for each call of a list."""

    __slots__ = ("_clear", "_found", "_mark")

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._found = -1
        self._clear = 0

    def find(self, text: str, at: int) -> int:
        """Return the mark's next place, or -1; `at` never goes back."""
        if self._mark and self._found < at:
            at = max(at, self._clear)
            self._found = text.find(self._mark, at)
            self._clear = max(at, len(text) - len(self._mark) + 1) if self._found < 0 else self._found
        return self._found


class Walk:
    """Finds the end of a call with unreadable arguments by its brackets and strings.

    `advance` returns True when `found` says what is at `at`: "call" (its closing parenthesis is just before it), "list"
    (the list's closing bracket, or the closing mark), "deep" (the limit was reached) or "end" (of the text). A walk
    stops at the next opening mark, even in a string, and after `most` brackets and strings, so that all walks together
    stay linear.
    """

    __slots__ = ("_closer", "_most", "_opener", "_stack", "at", "found", "start", "wait")

    def __init__(self, at: int, opener: Ahead, closer: str, most: int) -> None:
        self.start = self.at = at
        self.found = ""
        self.wait = ""
        self._opener = opener
        self._closer = closer
        self._most = most
        self._stack = ["("]

    def advance(self, text: str, *, final: bool) -> bool:
        """Continue to the end of the text so far; `wait` says what to wait for if that is not enough."""
        self.wait = ""
        found = self._opener.find(text, self.start)
        limit = len(text) if found < 0 else found
        for token in _tokens(self._closer)(text, self.at, limit):
            mark = token[0]
            self._most -= 1
            if not self._most:
                return self._stop("deep", token.start())
            if mark == self._closer:
                return self._stop("list", token.start())
            if len(mark) > 1:
                if mark in _EMPTY and token.end() == len(text) and not final:
                    self.at = token.start()
                    return False
            elif mark in _QUOTES:
                self.at, self.wait = token.start(), mark
                break
            elif self._pass_bracket(mark, token.start()):
                return True
            self.at = token.end()
        else:
            self.at = max(self.at, limit - len(self._closer) + 1) if self._closer else limit
        if limit < len(text):
            return self._stop("deep", limit)
        return final and self._stop("end", limit)

    def _pass_bracket(self, bracket: str, at: int) -> bool:
        stack = self._stack
        opener = _OPENER_OF.get(bracket)
        if opener is None:
            stack.append(bracket)
            return len(stack) > _MAX_DEPTH and self._stop("deep", at)
        if opener in stack:
            # Brackets that were opened inside and never closed end here too.
            while stack.pop() != opener:
                pass
            return not stack and self._stop("call", at + 1)
        return bracket == "]" and self._stop("list", at)

    def _stop(self, found: str, at: int) -> bool:
        self.found, self.at = found, at
        return True
