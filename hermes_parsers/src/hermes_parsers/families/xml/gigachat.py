"""Sber's GigaChat: 3 with a message of the role `function call`, 3.1 with a mark for calls, 3.5 with GCML tags.

The source is the models' chat templates. The template of GigaChat 3 writes at most one call per message; if a model
writes more, they are read.
"""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.families.json.tagged_json import TaggedJsonParser
from hermes_parsers.families.xml.dsml import DeepseekV32Parser, between_bars, dialect
from hermes_parsers.markup.dialect import Dialect

_ROLE = "function call<|role_sep|>"
_NEXT_MESSAGE = f"<|message_sep|>\n\n{_ROLE}"
_MARK = "<|function_call|>"


class Gigachat3Parser(TaggedJsonParser):
    """`<|message_sep|>`, an empty line, `function call<|role_sep|>` and an object; or one mark and the object."""

    openers: ClassVar[tuple[str, ...]] = (_NEXT_MESSAGE, _ROLE, _MARK)
    closers: ClassVar = dict.fromkeys(openers, "")
    wire_open: ClassVar[str] = f"{_NEXT_MESSAGE}\n"


class Gigachat35Parser(DeepseekV32Parser):
    """`<invoke>` and `<parameter>` with a mark in each tag; a parameter says whether it is text or JSON."""

    stop_tokens: ClassVar[tuple[str, ...]] = ()
    dialects: ClassVar[tuple[Dialect, ...]] = (dialect(between_bars("GCML"), ("tool_calls",)),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    reasoning_end: ClassVar[str] = "\n\n"
    mark: ClassVar[str] = between_bars("GCML")
    block: ClassVar[str] = "tool_calls"
    empty_body: ClassVar[str] = ""
    leads: ClassVar[bool] = False
