"""GLM-4.5 to GLM-5, Ling-3, Laguna (poolside), Hunyuan 3 and 4: `<arg_key>` and `<arg_value>` in pairs.

The line breaks are those of the models' chat templates; values are verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.source import KeyTag, Tag

_NAME: Final = re.compile(r"([\w.:/@$-]+)")
_LINES: Final = re.compile(r"[\r\n]*")
_BLANKS: Final = re.compile(r"[ \t]*")
_BODY: Final = re.compile(r"(?=[\r\n<])")
"""There is no mark after the name: the end of the line or a tag ends it; anything else shows that it is prose."""
_PARAMETER: Final = KeyTag("<arg_key>", "</arg_key>", "<arg_value>")
_CALL: Final = Tag("<tool_call>", _LINES, _NAME, _BLANKS, _BODY)


class Glm47Parser(MarkupParser):
    """GLM-4.7 and later, Ling-3, Laguna: no line breaks between the tags."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|user|>", "<|observation|>", "<|endoftext|>")
    dialects: ClassVar[tuple[Dialect, ...]] = (Dialect(_CALL, "</tool_call>", _PARAMETER, "</arg_value>"),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""
    line: ClassVar[str] = ""
    """The template's text between two tags of a call."""

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call."""
        return f"<tool_call>{call.name}{self.line}{self.write_parameters(call)}</tool_call>"

    def write_parameters(self, call: WrittenCall) -> str:
        """Write the pairs of a call."""
        line = self.line
        return "".join(
            [
                f"<arg_key>{name}</arg_key>{line}<arg_value>{self.write_value(value)}</arg_value>{line}"
                for name, value in call.value.items()
            ]
        )


class Glm45Parser(Glm47Parser):
    """GLM-4.5 and 4.6: each tag on a separate line."""

    dialects: ClassVar[tuple[Dialect, ...]] = (
        Dialect(_CALL, "</tool_call>", _PARAMETER, "</arg_value>", own_lines=True),
    )
    framing: ClassVar[str] = "\n"
    between: ClassVar[str] = "\n"
    reasoning_end: ClassVar[str] = "\n"
    line: ClassVar[str] = "\n"


def _hunyuan(suffix: str) -> Dialect:
    """Return Hunyuan's dialect; preview checkpoints have a suffix in every mark, `<tool_call:opensource>`."""
    return Dialect(
        Tag(f"<tool_call{suffix}>", _LINES, _NAME, _BLANKS, _BODY, optional=f"<tool_sep{suffix}>"),
        f"</tool_call{suffix}>",
        KeyTag(f"<arg_key{suffix}>", f"</arg_key{suffix}>", f"<arg_value{suffix}>"),
        f"</arg_value{suffix}>",
        blocks=((f"<tool_calls{suffix}>", f"</tool_calls{suffix}>"),),
    )


class HunyuanV3Parser(Glm47Parser):
    """Hunyuan 3: a mark after the name, and a block around the calls."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<\uff5chy_eos\uff5c>", "<\uff5chy_eos:opensource\uff5c>")
    dialects: ClassVar[tuple[Dialect, ...]] = (_hunyuan(""), _hunyuan(":opensource"))
    openers: ClassVar[tuple[str, ...]] = (*dialects[0].openers, *dialects[1].openers)
    separator: ClassVar[str] = "<tool_sep>"

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        return f"<tool_calls>{super().write_calls(calls)}</tool_calls>"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        return f"<tool_call>{call.name}{self.separator}{self.write_parameters(call)}</tool_call>"


class HunyuanV4Parser(HunyuanV3Parser):
    """Hunyuan 4: without the mark after the name."""

    stop_tokens: ClassVar[tuple[str, ...]] = ()
    separator: ClassVar[str] = ""
