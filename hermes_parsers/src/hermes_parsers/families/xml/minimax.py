"""MiniMax-M2, Muse and MiniCPM5: `<invoke name="…">` with `<parameter name="…">`, and MiniCPM5's shorter form.

The line breaks are those of MiniMax-M2's chat template; values are verbatim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import ANY_QUOTED, ANY_QUOTED_KEY, ATTRIBUTES, Dialect, invoke_dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.source import Tag
from hermes_parsers.schemas import known_names

_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"


class MinimaxM2Parser(MarkupParser):
    """`<minimax:tool_call>` around any number of calls."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("[e~[",)
    dialects: ClassVar[tuple[Dialect, ...]] = (invoke_dialect("", (("<minimax:tool_call>", "</minimax:tool_call>"),)),)
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    ends_reasoning: ClassVar[tuple[str, ...]] = ("<minimax:tool_call>",)
    framing: ClassVar[str] = "\n"
    tag: ClassVar[str] = ""
    """The text before the tags' names."""

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        (opening, closing), *_ = self.dialects[0].blocks
        written = [self.write_call(call, index) for index, call in enumerate(calls)]
        return f"{opening}\n{''.join(written)}{closing}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        tag = self.tag
        values = [
            f'<{tag}parameter name="{name}">{self.write_value(value)}</{tag}parameter>\n'
            for name, value in call.value.items()
        ]
        return f'<{tag}invoke name="{call.name}">\n{"".join(values)}</{tag}invoke>\n'


class MuseParser(MinimaxM2Parser):
    """Meta Muse: ATEM tags. The headers of its messages (`<|start|>assistant to=…<|message|>`) are content."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot|>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (
        invoke_dialect("atem:", (("<atem:function_calls>", "</atem:function_calls>"),)),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    ends_reasoning: ClassVar[tuple[str, ...]] = openers
    framing: ClassVar[str] = ""
    reasoning_tags: ClassVar = ("to=self<|message|>", "<|eom|>")
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""
    tag: ClassVar[str] = "atem:"

    def name_of(self, written: str, tools: Any) -> str:
        """Return the tool's name without a namespace; the template asks the model for one even if the tool has none.

        Applies only if no tool has the written name and exactly one tool fits: `get.get` and `weather.get` for `get`,
        or the reverse.
        """
        known = known_names(tools) if tools else None
        if not known or written in known:
            return written
        leaf = written.rpartition(".")[2]
        fitting = [name for name in known if name.rpartition(".")[2] == leaf]
        return fitting[0] if leaf and len(fitting) == 1 else written


def _minicpm(space: str) -> Dialect:
    return Dialect(
        Tag(f"<function{space}name=", *ANY_QUOTED, ATTRIBUTES, ">"),
        "</function>",
        Tag(f"<param{space}name=", *ANY_QUOTED_KEY, ATTRIBUTES, ">"),
        "</param>",
        is_common=True,
    )


class Minicpm5Parser(MarkupParser):
    """MiniCPM5: calls without a block around them."""

    # The second one is the result of decoders that treat the space as part of the mark.
    dialects: ClassVar[tuple[Dialect, ...]] = (_minicpm(" "), _minicpm(""))
    openers: ClassVar[tuple[str, ...]] = (*dialects[0].openers, *dialects[1].openers)
    ends_reasoning: ClassVar[tuple[str, ...]] = ()
    between: ClassVar[str] = "\n"

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: FBT001 - the base's signature
        """Return a value without the CDATA section that the model puts around markup."""
        if not is_closed:
            text = super().text_of(text, is_closed)
        if text.startswith(_CDATA) and text.endswith(_CDATA_END):
            return text[len(_CDATA) : -len(_CDATA_END)]
        return text

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call."""
        values = [f'<param name="{name}">{self.write_value(value)}</param>' for name, value in call.value.items()]
        return f'<function name="{call.name}">{"".join(values)}</function>'
