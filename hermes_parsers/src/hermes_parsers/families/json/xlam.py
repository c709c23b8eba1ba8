"""xLAM-2 and other models that answer with a bare array of calls, in a fence or after another model's mark."""

from __future__ import annotations

import re
from typing import ClassVar, Final

from hermes_parsers.engine.scanning.scan import Draft, Scan, cut
from hermes_parsers.families.json.json_array import JsonArrayParser
from hermes_parsers.families.json.tool_schemas import is_declaration

_SPACE: Final = r"[ \t\n\r]*+"
_NAMES: Final = ("name", "arguments", "parameters", "id")
_KEYS: Final = "|".join(f'"{name}"|{cut(chr(34) + name + chr(34))}' for name in _NAMES)
# An array of other objects is an answer in JSON, not a call.
_ITEM: Final = rf"\[(?={_SPACE}(?:\{{{_SPACE}(?:{_KEYS})|\Z))"

_MARKS: Final = ("[TOOL_CALLS]", "<tool_call>")
_IS_CALL: Final = re.compile(
    rf'\{{{_SPACE}"name"{_SPACE}:{_SPACE}"[^"\\]*+"{_SPACE},{_SPACE}"(?:arguments|parameters)"{_SPACE}:'
).match


class XlamParser(JsonArrayParser):
    """`[{"name": …, "arguments": …}]`, alone, after reasoning, in a fence, or after another model's mark."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot_id|>", "<|im_end|>")
    openers: ClassVar[tuple[str, ...]] = ("```json", "```\n", "[TOOL_CALLS]", "<tool_call>")
    closers: ClassVar = {
        "": "",
        "```json": "```",
        "```\n": "```",
        "[TOOL_CALLS]": "",
        "<tool_call>": "</tool_call>",
    }
    # Fences are common in reasoning.
    ends_reasoning: ClassVar[tuple[str, ...]] = _MARKS
    body: ClassVar[str] = rf"{_SPACE}(?:{_ITEM}|\Z)"
    pattern: ClassVar[str] = _ITEM
    # Brackets never meet like this in JSON, so another array begins.
    ends: ClassVar[str] = rf'\](?={_SPACE}\[{_SPACE}\{{{_SPACE}"name")'

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks without the fence, which may stand around any answer."""
        return ("<tool_call>",), ("</tool_call>",)

    def takes(self, scan: Scan, opener: str, at: int, draft: Draft) -> bool:
        """Whether the first item is a call: without another model's mark it must have a name and arguments."""
        if opener in _MARKS:
            return True
        if draft.name is None:
            return _IS_CALL(scan.text, at) is not None
        if is_declaration(scan.tools, scan.text, at, draft):
            return False
        return any(key in scan.text[at : draft.end] for key in ('"arguments"', '"parameters"'))
