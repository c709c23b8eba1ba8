"""What the models that live in this package share: no server, no state, one turn after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hermes_core.contracts.model import Conversation, Message, ModelReply, RequestedCall, encode
from hermes_core.contracts.task import Step

DONE = "Done."
"""The final message where a script names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn with one tool call; `arguments` is text, for it may be meant to be wrong."""

    tool: str
    arguments: str
    content: str | None = None

    @classmethod
    def of(cls, step: Step, content: str | None = None) -> Turn:
        """Play a step as it stands."""
        return cls(tool=step.tool, arguments=encode(step.arguments).decode(), content=content)


class EmbeddedModel:
    """Base of the embedded models; nothing to check and nothing to close."""

    name: ClassVar[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Protocol and name."""
        return {"protocol": "embedded", "model_name": self.name}

    async def check(self) -> None:
        """There is no server."""

    async def aclose(self) -> None:
        """There is no connection."""


def assistant_turns(messages: Iterable[Message]) -> int:
    """Count the turns that were taken."""
    return sum(message.get("role") == "assistant" for message in messages)


def play(turns: Sequence[Turn], answer: str, *, position: int, conversation: Conversation) -> ModelReply:
    """Return the turn at a position, or the answer after the last."""
    if position >= len(turns):
        return ModelReply(content=answer, finish_reason="stop")
    turn = turns[position]
    # Two turns of one conversation never begin at the same length, so the id names one call of it.
    call = RequestedCall(id=f"call_{len(conversation)}", name=turn.tool, arguments=turn.arguments)
    return ModelReply(content=turn.content, tool_calls=(call,), finish_reason="tool_calls")
