"""What an `AtroposAgent` may be given as its server: our model clients and sessions, and servers of Atropos' shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_atropos.groups.group_runner import note_session
from hermes_atropos.model_servers.servers import Servers
from hermes_core.contracts.model import ModelClient, ModelReply, ModelRequest, RequestedCall, Usage
from hermes_core.contracts.tokens import ModelSession, RecordingModel


def model_of(server: Any, rollout_id: str) -> ModelClient | ModelSession:
    """Return what to chat with in one conversation; a session that keeps the tokens, where the server can."""
    model = server.model if isinstance(server, Servers) else server
    if isinstance(model, RecordingModel):
        session = model.session(rollout_id)
        note_session(session)
        return session
    return model if isinstance(model, ModelClient | ModelSession) else CompletionModel(model)


def reasoning_of(server: Any) -> Mapping[str, Any]:
    """Return what the environment's servers want in every request; sessions and strangers add their own."""
    return server.reasoning if isinstance(server, Servers) else {}


class CompletionModel:
    """Chats with a server that has `chat_completion` and answers in OpenAI's types."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What is known of it: its type."""
        return {"protocol": type(self._server).__name__}

    async def check(self) -> None:
        """Ask nothing: such a server has no question that costs nothing."""

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Ask for one completion."""
        completion = await self._server.chat_completion(
            messages=[dict(message) for message in request.conversation.messages], **request.sampling
        )
        return _reply(completion)

    async def aclose(self) -> None:
        """Leave the server open: it is not ours."""


def _reply(completion: Any) -> ModelReply:
    choice = completion.choices[0]
    message, usage = choice.message, getattr(completion, "usage", None)
    extra = getattr(message, "model_extra", None) or {}
    reasoning = next((value for key in ("reasoning_content", "reasoning") if (value := extra.get(key))), None)
    return ModelReply(
        content=message.content,
        reasoning=reasoning,
        tool_calls=tuple(_call(call) for call in getattr(message, "tool_calls", None) or ()),
        finish_reason=choice.finish_reason or "stop",
        usage=Usage(
            prompt_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            completion_tokens=getattr(usage, "completion_tokens", 0) or 0,
        ),
    )


def _call(call: Any) -> RequestedCall:
    return RequestedCall(id=call.id or "", name=call.function.name, arguments=call.function.arguments or "{}")
