"""The base class of every family: adds `parse`, `stream` and `render` to a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_core.contracts.parsing import ParseMode, ParseResult, ToolSchema
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.stream import ScanStream

if TYPE_CHECKING:
    from hermes_parsers.engine.options import ParserOptions
    from hermes_parsers.engine.rendering import WrittenCall


class OptionsOnDemand:
    """The model of a parser's options, imported only when a registry needs it.

    Importing pydantic costs more than all parsers.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Import the model."""
        return getattr(import_module(self._module), self._name)


class ScanningParser(FormatReader):
    """A parser of one wire format; stateless, so one object serves any number of threads and streams.

    A subclass sets `openers` (or a `pattern` beside them), implements `read` and, to write messages, `write_call`. No
    opener may be the beginning of another.

    Args:
        options: Options validated by a registry, in place of the keyword arguments.
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: The prompt has already opened the reasoning, so the text begins inside it.
    """

    stream_type: ClassVar[type[ScanStream]] = ScanStream
    """The driver; a subclass replaces it if its format has marks around text as well."""
    stop_tokens: ClassVar[tuple[str, ...]] = ()
    """The special tokens at which models of this format end a turn (`StoppingParser`); empty if unknown."""
    between: ClassVar[str] = ""
    """What the model's template writes between two calls."""

    Options = OptionsOnDemand("hermes_parsers.engine.options", "ParserOptions")

    def __init__(
        self, options: ParserOptions | None = None, *, promote_drafts: bool = False, reasoning_opened: bool = False
    ) -> None:
        if options is not None:
            promote_drafts, reasoning_opened = options.promote_drafts, options.reasoning_opened
        super().__init__(promote_drafts=promote_drafts, reasoning_opened=reasoning_opened)

    def parse(self, text: str, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParseResult:
        """Parse a complete text."""
        return self.stream_type(self, tools, mode).whole(text)

    def stream(self, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ScanStream:
        """Start parsing text that arrives in pieces."""
        return self.stream_type(self, tools, mode)

    def declare(self, tools: Sequence[ToolSchema]) -> str:
        """Return the text about tools for a system prompt, for models whose chat template does not list tools.

        Raises:
            ValueError: There is no tool, or this format cannot write a call.
        """
        from hermes_parsers.engine.tool_prompt import declaration

        return declaration(tools, self.render)

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back: byte for byte what was parsed, otherwise as the model's template does.

        Raises:
            ValueError: It cannot be written so that it reads back the same.
        """
        # Imported here because parsing does not need it.
        from hermes_parsers.engine.rendering import read_message, refuse_unless_same
        from hermes_parsers.engine.round_trip import refuse_unless_read_with_tools

        if isinstance(message, ParseResult):
            return "".join([segment.raw for segment in message.segments])
        reasoning, content, calls = read_message(message)
        text = self.write_turn(reasoning, content, calls)
        refuse_unless_same(self.parse(text), reasoning, content, calls)
        refuse_unless_read_with_tools(self.parse, text, calls)
        return text

    def write_turn(self, reasoning: str, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write the whole message."""
        return self.write_reasoning(reasoning) + self.write(content, calls)

    def write_reasoning(self, reasoning: str) -> str:
        """Write the reasoning with its tags; "" if there is none."""
        if not reasoning:
            return ""
        if self.reasoning_tags is None:
            raise ValueError(
                "expected no reasoning, since this format has none, got some in the message; remove reasoning_content"
            )
        (opening, closing), (before, after) = self.reasoning_tags, self.reasoning_framing
        return f"{opening}{before}{reasoning}{after}{closing}{self.reasoning_end}"

    def write(self, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write content and calls."""
        if not calls:
            return content
        return f"{content}{self.framing if content else ''}{self.write_calls(calls)}"

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls, with the template's text around all of them."""
        return self.between.join([self.write_call(call, index) for index, call in enumerate(calls)])

    def write_call(self, call: WrittenCall, index: int) -> str:
        """Write one call; `index` counts from 0."""
        raise NotImplementedError(f"{type(self).__qualname__} must implement write_call(call, index)")
