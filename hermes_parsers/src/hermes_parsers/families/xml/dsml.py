"""DeepSeek V3.2, V4 and V4.1: DSML; each parameter says whether it is text or JSON.

The sources are `encoding_dsv32.py` and `encoding_dsv4.py` of the models' repositories. Each parser reads all spellings:
the names of the block differ by version, V4.1 writes a space after the mark, and models misspell the block
(sglang#38924).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import Dialect, invoke_dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.writing import dumps

# The wide bars are the model's own special characters.
_BAR: Final = "\uff5c"
_BLOCKS: Final = ("function_calls", "tool_calls", "toolcalls", "calls")


def between_bars(name: str) -> str:
    """Return a mark between two of the models' bars."""
    return f"{_BAR}{name}{_BAR}"


def dialect(mark: str, blocks: tuple[str, ...] = _BLOCKS) -> Dialect:
    """Return the dialect with a mark in each tag."""
    return invoke_dialect(mark, tuple((f"<{mark}{block}>", f"</{mark}{block}>") for block in blocks))


_MARK: Final = between_bars("DSML")


class DeepseekV32Parser(MarkupParser):
    """DeepSeek-V3.2: `function_calls`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<｜end▁of▁sentence｜>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (dialect(_MARK), dialect(f"{_MARK} "))
    openers: ClassVar[tuple[str, ...]] = (*dialects[0].openers, *dialects[1].openers)
    declared: ClassVar = {' string="true"': "text", ' string="false"': "json"}
    wrappers: ClassVar[tuple[str, ...]] = ("arguments", "input")
    framing: ClassVar[str] = "\n\n"
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""
    block: ClassVar[str] = "function_calls"
    mark: ClassVar[str] = _MARK
    empty_body: ClassVar[str] = "\n"
    """The text in place of the parameters if there are none."""
    leads: ClassVar[bool] = True
    """Whether an empty line precedes the calls even without content."""

    def write(self, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write content and calls."""
        if not self.leads:
            return super().write(content, calls)
        return f"{content}{self.framing}{self.write_calls(calls)}" if calls else content

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        mark = self.mark
        written = "\n".join([self.write_call(call, index) for index, call in enumerate(calls)])
        return f"<{mark}{self.block}>\n{written}\n</{mark}{self.block}>"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        mark = self.mark
        values = [
            f'<{mark}parameter name="{name}" string="{str(isinstance(value, str)).lower()}">'
            f"{self.write_value(value)}</{mark}parameter>"
            for name, value in call.value.items()
        ]
        body = "\n".join(values) + "\n" if values else self.empty_body
        return f'<{mark}invoke name="{call.name}">\n{body}</{mark}invoke>'

    def write_value(self, value: Any) -> str:
        """Write a string as it is, anything else as JSON."""
        return value if isinstance(value, str) else dumps(value)

    def read_back(self, value: Any) -> Any:
        """Return the value as it will be read back: the tag tells its type."""
        return value


class DeepseekV4Parser(DeepseekV32Parser):
    """DeepSeek-V4: `tool_calls`."""

    block: ClassVar[str] = "tool_calls"


class DeepseekV41Parser(DeepseekV32Parser):
    """DeepSeek-V4.1: `calls`, with a space after the mark."""

    block: ClassVar[str] = "calls"
    mark: ClassVar[str] = f"{_MARK} "
