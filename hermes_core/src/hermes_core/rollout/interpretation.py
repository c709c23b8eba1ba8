"""From a model's reply to the message that is kept and the calls that are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes_core.contracts.model import Message, ModelReply, RequestedCall
from hermes_core.contracts.parsing import AttemptStatus, ParseAttempt, ParseResult, ToolCallParser

_GOOD = frozenset({AttemptStatus.OK, AttemptStatus.REPAIRED, AttemptStatus.UNCLOSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn.

    `complaint` is what to tell a model whose every attempt to call a tool was malformed: without it such a turn would
    pass for a final answer.
    """

    message: Message
    calls: tuple[RequestedCall, ...] = ()
    content: str | None = None
    malformed: int = 0
    complaint: str | None = None


def interpret(reply: ModelReply, parser: ToolCallParser | None, schemas: Sequence[Any] = ()) -> Turn:
    """Read a reply; raw text goes through the parser, if there is one and the server found no calls itself."""
    if parser is None or reply.tool_calls or not reply.content:
        message = assistant_message(reply.content, reply.reasoning, reply.tool_calls)
        return Turn(message=message, calls=reply.tool_calls, content=reply.content)
    result = parser.parse(reply.content, list(schemas))
    calls = tuple(RequestedCall(id=call.id, name=call.name, arguments=call.arguments) for call in result.calls)
    bad = [a for a in result.attempts if a.status not in _GOOD and a.status is not AttemptStatus.IN_REASONING]
    # A call to a tool that is not offered is handed on and answered by the dispatcher, like any server's.
    bad = [a for a in bad if a.status is not AttemptStatus.UNKNOWN_TOOL or not calls]
    if calls or not bad:
        return _parsed(reply, result, calls, len(bad))
    message = assistant_message(reply.content, reply.reasoning, ())
    return Turn(message=message, content=result.content, malformed=len(bad), complaint=_complaint(bad))


def _parsed(reply: ModelReply, result: ParseResult, calls: tuple[RequestedCall, ...], malformed: int) -> Turn:
    message = assistant_message(result.content, reply.reasoning or result.reasoning, calls)
    return Turn(message=message, calls=calls, content=result.content, malformed=malformed)


def assistant_message(content: str | None, reasoning: str | None, calls: Sequence[RequestedCall]) -> Message:
    """Build the assistant message that goes back to the model in later turns."""
    message: Message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def _complaint(attempts: Sequence[ParseAttempt]) -> str:
    lines = [f"- {attempt.status.value}: {attempt.reason or attempt.raw[:200]}" for attempt in attempts]
    return "No tool was called, because the call could not be read:\n" + "\n".join(lines) + "\nPlease write it again."
