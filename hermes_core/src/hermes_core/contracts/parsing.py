"""The contract of a tool-call parser: text to segments and calls, and back. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

ParseMode = Literal["strict", "lenient"]
ToolSchema = Mapping[str, Any]
"""An OpenAI tool schema: `{"type": "function", "function": {"name": …, "parameters": …}}`."""


class AttemptStatus(StrEnum):
    """How an attempt to call a tool was read; ok, repaired, unclosed and unknown_tool become calls."""

    OK = "ok"
    REPAIRED = "repaired"
    UNCLOSED = "unclosed"
    TRUNCATED = "truncated"
    INVALID_JSON = "invalid_json"
    MISSING_NAME = "missing_name"
    UNKNOWN_TOOL = "unknown_tool"
    IN_REASONING = "in_reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """A tool call. `arguments` is the text of a valid JSON object; `id` is the model's, or generated.

    `wire_id` is the id as it stood in the model's text, if it wrote one: `id` may be made unique over a rollout, the
    text of the turn is written again with `wire_id`.
    """

    name: str
    arguments: str
    id: str
    wire_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseAttempt:
    """One attempt to call a tool, readable or not, with its span in the source text."""

    status: AttemptStatus
    raw: str
    start: int
    end: int
    name: str | None = None
    arguments: str | None = None
    value: Any = None
    """`arguments`, parsed; both are set if the call could be read, also inside reasoning."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSegment:
    """A piece of the source; the segments of a result cover it without gap or overlap, in order.

    `call` is the index into `ParseResult.calls` of a segment of kind "call" that became one, else None.
    """

    kind: Literal["text", "reasoning", "call"]
    start: int
    end: int
    raw: str
    call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """What a model's text means. `content` is None when there is no text outside reasoning and calls."""

    content: str | None
    reasoning: str | None = None
    calls: tuple[ParsedCall, ...] = ()
    attempts: tuple[ParseAttempt, ...] = ()
    segments: tuple[ParseSegment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseEvent:
    """One certain piece of a stream: more text or reasoning, or a finished attempt to call a tool.

    `call` is None for an attempt that does not become a call; `text` is what the model wrote. Reasoning that
    is recognised only at its end (a closing tag without an opening one) is sent again, as reasoning.
    """

    kind: Literal["text", "reasoning", "call"]
    text: str = ""
    call: ParsedCall | None = None


@runtime_checkable
class ParserStream(Protocol):
    """A parse in progress. However the text is cut, the events and the result are the same."""

    def feed(self, delta: str) -> Sequence[ParseEvent]:
        """Take more text and return what is certain now: text that begins no call, ended reasoning, ended calls."""

    def finish(self) -> Sequence[ParseEvent]:
        """Say that the text has ended and return the last events."""

    def result(self) -> ParseResult:
        """Return the whole result; only after `finish`."""


@runtime_checkable
class ToolCallParser(Protocol):
    """A parser of one wire format. Stateless, may be shared between threads; never raises on model text."""

    def parse(self, text: str, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParseResult:
        """Parse a complete text."""

    def stream(self, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParserStream:
        """Begin to parse text that arrives in pieces."""

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write an assistant message back as the model would; raises ValueError for what cannot be written."""


@runtime_checkable
class DeclaringParser(ToolCallParser, Protocol):
    """A parser that can also say to a model how to call tools, for chat templates that do not list them."""

    def declare(self, tools: Sequence[ToolSchema]) -> str:
        """Return the text for a system prompt: each tool once, and how its calls are written in this format.

        Raises ValueError where the format cannot say it. What a model writes as the text shows, `parse` reads.
        """


@runtime_checkable
class StoppingParser(ToolCallParser, Protocol):
    """A parser that also says where its models end a turn: whatever such a model writes behind that is made up."""

    @property
    def stop_tokens(self) -> Sequence[str]:
        """The texts of the special tokens at which a turn ends; a model of the format may have only some of them.

        Empty where the format does not say. Stop at a token and not at its text, which an argument may hold: look up
        its id, and leave out a token that the tokenizer does not have.
        """


class BufferedParser:
    """Base for a parser that knows complete texts only: `stream` collects the text and parses it at the end."""

    def parse(self, text: str, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParseResult:
        """Parse a complete text; the subclass's part."""
        raise NotImplementedError

    def stream(self, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParserStream:
        """Begin to parse text that arrives in pieces."""
        return _BufferedStream(self, tools, mode)


class _BufferedStream:
    def __init__(self, parser: BufferedParser, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        self._parser = parser
        self._tools = tools
        self._mode: ParseMode = mode
        self._pieces: list[str] = []
        self._result: ParseResult | None = None

    def feed(self, delta: str) -> Sequence[ParseEvent]:
        self._pieces.append(delta)
        return ()

    def finish(self) -> Sequence[ParseEvent]:
        result = self._result = self._parser.parse("".join(self._pieces), self._tools, self._mode)
        return [
            ParseEvent(kind=part.kind, text=part.raw, call=None if part.call is None else result.calls[part.call])
            for part in result.segments
        ]

    def result(self) -> ParseResult:
        if self._result is None:
            raise RuntimeError("result() is there after finish()")
        return self._result
