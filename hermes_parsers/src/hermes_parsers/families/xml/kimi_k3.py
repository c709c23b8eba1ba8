"""Kimi K3: XTML; each argument says its JSON type, and a call may contain one block of JSON instead of arguments.

Reasoning and answer have separate channels; the answer's marks are part of the content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from hermes_parsers.coercion import coerce_text, misfit
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.values.json_text import Balance
from hermes_parsers.markup.call import Call, Parameter
from hermes_parsers.markup.dialect import ATTRIBUTES, QUOTED, Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.reader import Schemas
from hermes_parsers.markup.source import IncompleteError, Source, Tag

_SEP: Final = "<|sep|>"
# In an attribute only a quote is special, and the ampersand that escapes it: see `_escape`.
_NAME: Final = re.compile(r"([^\"\n]*)")
_KEY: Final = re.compile(r"([^\"\n]+)")
_JSON: Final = Tag('<|open|>json type="', QUOTED, '"', ATTRIBUTES, _SEP)
_JSON_CLOSE: Final = f"<|close|>json{_SEP}"
_WHOLE: Final = "<|open|>json"
"""The name used for a block of JSON; no argument can have it."""
_MAX_MARKS: Final = 16
"""An object with this many closing marks inside counts as unclosed, because such calls take long to read."""
_TYPES: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


class KimiK3Parser(MarkupParser):
    """`<|open|>call tool="…" index="…"<|sep|>` with typed arguments, numbered from 1."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|end_of_msg|>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (
        Dialect(
            Tag('<|open|>call tool="', _NAME, '"', ATTRIBUTES, _SEP),
            f"<|close|>call{_SEP}",
            Tag('<|open|>argument key="', _KEY, '"', ATTRIBUTES, _SEP),
            f"<|close|>argument{_SEP}",
            blocks=((f"<|open|>tools{_SEP}", f"<|close|>tools{_SEP}"),),
            other_bodies=(_JSON.opening,),
        ),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    reasoning_tags: ClassVar = (f"<|open|>think{_SEP}", f"<|close|>think{_SEP}")
    # All types except strings are JSON; the last entry is for types that are not in this table.
    declared: ClassVar = {
        ' type="string"': "text",
        **{f' type="{kind}"': "json" for kind in ("number", "boolean", "null", "array", "object")},
        ' type="': "json",
    }
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""

    def name_of(self, written: str, tools: Any) -> str:  # noqa: ARG002 - the base's signature
        """Return the name without the escapes of an attribute."""
        return _unescape(written)

    def read_body(self, source: Source, call: Call, at: int) -> None:
        """Read arguments, or the block of JSON that contains all of them."""
        block = source.tag(_JSON, at)
        if block is None:
            super().read_body(source, call, at)
        else:
            _read_json(source, call, block.end())

    def arguments_of(self, parameters: Sequence[Parameter], schemas: Schemas) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments; a block of JSON may contain all of them."""
        if len(parameters) == 1 and parameters[0][0] == _WHOLE:
            value, _ = coerce_text(parameters[0][2], None, declared="json")
            found = [(name, misfit(member, (schemas or {}).get(name))) for name, member in value.items()]
            return dict(value), [f"{name}: {note}" for name, note in found if note]
        unescaped = [(_unescape(name), attribute, text, ends) for name, attribute, text, ends in parameters]
        return super().arguments_of(unescaped, schemas)

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        (opening, closing), *_ = self.dialects[0].blocks
        return f"{opening}{super().write_calls(calls)}{closing}"

    def write_call(self, call: WrittenCall, index: int) -> str:
        """Write one call of a block."""
        values = [
            f'<|open|>argument key="{_escape(name)}" type="{_TYPES.get(type(value), "null")}"{_SEP}'
            f"{self.write_value(value)}<|close|>argument{_SEP}"
            for name, value in call.value.items()
        ]
        opening = f'<|open|>call tool="{_escape(call.name)}" index="{index + 1}"{_SEP}'
        return f"{opening}{''.join(values)}<|close|>call{_SEP}"

    def read_back(self, value: Any) -> Any:
        """Return the value as it will be read back: the tag tells its type."""
        return value


def _escape(name: str) -> str:
    return name.replace("&", "&amp;").replace('"', "&quot;")


def _unescape(name: str) -> str:
    return name.replace("&quot;", '"').replace("&amp;", "&") if "&" in name else name


class _JsonBlock:
    """Where a block of JSON ends: at the first mark after its object, because a mark inside a string is text.

    Without a closing mark (`is_closed` is false) it ends with its object, if the call's closing mark follows.
    """

    __slots__ = ("_at", "_balance", "_looked", "_marks", "is_closed")

    def __init__(self, at: int, begin: int) -> None:
        self._at = self._looked = at
        self._balance = Balance(begin)
        self._marks: list[int] = []
        self.is_closed = True

    def end(self, source: Source, call_close: str) -> int:
        """Return the place of the mark, or -1 if the text ends without it. Raises IncompleteError."""
        text, balance = source.text, self._balance
        self._find_marks(text)
        is_full = len(self._marks) == _MAX_MARKS
        if text.startswith("{", balance.start) and balance.dead < 0:
            is_decided = balance.advance(text[: self._marks[-1]] if is_full else text)
            if not (is_decided or is_full or source.final):
                raise IncompleteError(">")
        if balance.end >= 0 and source.sees(call_close, source.space(balance.end)):
            self.is_closed = False
            return balance.end
        found = next((mark for mark in self._marks if mark >= balance.end), -1)
        if found < 0 and not source.final:
            raise IncompleteError(">")
        return found

    def _find_marks(self, text: str) -> None:
        while len(self._marks) < _MAX_MARKS:
            found = text.find(_JSON_CLOSE, self._looked)
            if found < 0:
                self._looked = max(self._looked, len(text) - len(_JSON_CLOSE) + 1)
                break
            self._marks.append(found)
            self._looked = found + 1


def _read_json(source: Source, call: Call, at: int) -> None:
    text, closing = source.text, call.dialect.call_close
    if call.reading is None:
        call.reading = _JsonBlock(at, source.space(at))
    end = call.reading.end(source, closing)
    if end < 0:
        call.finish(len(text), is_cut=True)
        return
    behind = end + len(_JSON_CLOSE) if call.reading.is_closed else end
    after = source.space(behind)
    while source.sees(_JSON_CLOSE, after):
        behind = after + len(_JSON_CLOSE)
        after = source.space(behind)
        call.repair(f"{_JSON_CLOSE} appears twice")
    is_closed = source.sees(closing, after)
    value, _ = coerce_text(text[at:end], None, declared="json")
    if isinstance(value, dict):
        call.parameters.append((_WHOLE, "", text[at:end], call.reading.is_closed))
    else:
        call.junk = text[at:end] or _JSON.opening
    call.finish(after + len(closing) if is_closed else behind, is_closed=is_closed)
