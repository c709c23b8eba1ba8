"""The base of the embedded models: no server, no state, one scripted turn after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hermes_core.contracts.model import Conversation, Message, ModelReply, RequestedCall, encode
from hermes_core.contracts.task import Step

DONE = "Done."
"""The final message of a script that gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn with one tool call; `arguments` is text, so that it can be wrong on purpose."""

    tool: str
    arguments: str
    content: str | None = None

    @classmethod
    def of(cls, step: Step, content: str | None = None) -> Turn:
        """Return a turn that makes the call of a step unchanged."""
        return cls(tool=step.tool, arguments=encode(step.arguments).decode(), content=content)


class EmbeddedModel:
    """Base class of the embedded models; there is nothing to check and nothing to close."""

    name: ClassVar[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Protocol and name."""
        return {"protocol": "embedded", "model_name": self.name}

    async def check(self) -> None:
        """Do nothing: there is no server."""

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def assistant_turns(messages: Iterable[Message]) -> int:
    """Count the assistant's turns so far."""
    return sum(message.get("role") == "assistant" for message in messages)


def reply_at(turns: Sequence[Turn], answer: str, *, position: int, conversation: Conversation) -> ModelReply:
    """Return the turn at a position, or the answer after the last."""
    if position >= len(turns):
        return ModelReply(content=answer, finish_reason="stop")
    turn = turns[position]
    # No two turns of a conversation start at the same length, so the id is unique in it.
    call = RequestedCall(id=f"call_{len(conversation)}", name=turn.tool, arguments=turn.arguments)
    return ModelReply(content=turn.content, tool_calls=(call,), finish_reason="tool_calls")
