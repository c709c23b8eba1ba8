"""Qwen3-Coder, Qwen3.5 and models that adopted their format, with `<function=…>` and `<parameter=…>`.

The texts are those of the models' chat templates; the template puts one line break before a value and one after it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import KEY, NAME, Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.source import Tag
from hermes_parsers.writing import dumps


def _dialect(opening: str, closing: str, *, own_lines: bool = True) -> Dialect:
    return Dialect(
        Tag("<function=", NAME, ">"),
        "</function>",
        Tag("<parameter=", KEY, ">"),
        "</parameter>",
        blocks=((opening, closing),),
        own_lines=own_lines,
        is_common=True,
    )


class Qwen3CoderParser(MarkupParser):
    """`<tool_call>`, each tag and each value on separate lines."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (_dialect("<tool_call>", "</tool_call>"),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    ends_reasoning: ClassVar[tuple[str, ...]] = ("<tool_call>",)
    wraps: ClassVar[bool] = True
    framing: ClassVar[str] = "\n\n"
    between: ClassVar[str] = "\n"

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: ARG002, FBT001 - the base's signature
        """Return a value without the template's line breaks, one before and one after it."""
        return text.removeprefix("\n").removesuffix("\n")

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call in its block."""
        (opening, closing), *_ = self.dialects[0].blocks
        values = [self.write_parameter(name, self.write_value(value)) for name, value in call.value.items()]
        return f"{opening}\n<function={call.name}>\n{''.join(values)}</function>\n{closing}"

    def write_parameter(self, name: str, value: str) -> str:
        """Write a parameter with its tags."""
        return f"<parameter={name}>\n{value}\n</parameter>\n"

    def write_value(self, value: Any) -> str:
        """Write objects and arrays as JSON, other values as Python's `str`, like the template."""
        return dumps(value) if isinstance(value, dict | list) else str(value)


class Qwen36Parser(Qwen3CoderParser):
    """Qwen3.6 and Qwen3.8: the same, but every value except strings as JSON."""

    def write_value(self, value: Any) -> str:
        """Write a value: a string unchanged, anything else as JSON."""
        return MarkupParser.write_value(self, value)


class Step5Parser(Qwen3CoderParser):
    """Step-5: white space before a call belongs to the content."""

    stop_tokens: ClassVar[tuple[str, ...]] = ()
    framing: ClassVar[str] = ""


class SeedOssParser(Qwen3CoderParser):
    """ByteDance Seed-OSS: different outer tags, values on the line of their tags, every value as Python's `str`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<seed:eos>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (_dialect("<seed:tool_call>", "</seed:tool_call>"),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    ends_reasoning: ClassVar[tuple[str, ...]] = ("<seed:tool_call>",)
    reasoning_tags: ClassVar = ("<seed:think>", "</seed:think>")
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = "\n"

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: FBT001 - the base's signature
        """Return a value unchanged, or without its line breaks if it is on separate lines as in Qwen's format."""
        has_lines = len(text) > 1 and text[0] == text[-1] == "\n"
        return text[1:-1] if has_lines else MarkupParser.text_of(self, text, is_closed)

    def write_parameter(self, name: str, value: str) -> str:
        """Write a parameter with its tags."""
        return f"<parameter={name}>{value}</parameter>\n"

    def write_value(self, value: Any) -> str:
        """Write a value as Python's `str`, like the template."""
        return str(value)


class MimoParser(Qwen3CoderParser):
    """Xiaomi MiMo: no line breaks around values, which are verbatim."""

    dialects: ClassVar[tuple[Dialect, ...]] = (_dialect("<tool_call>", "</tool_call>", own_lines=False),)

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: FBT001 - the base's signature
        """Return a value unchanged."""
        return MarkupParser.text_of(self, text, is_closed)

    def write_parameter(self, name: str, value: str) -> str:
        """Write a parameter with its tags."""
        return f"<parameter={name}>{value}</parameter>\n"

    def write_value(self, value: Any) -> str:
        """Write a value: a string unchanged, anything else as JSON."""
        return MarkupParser.write_value(self, value)
