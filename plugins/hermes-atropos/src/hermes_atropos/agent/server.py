"""Adapt the servers that an `AtroposAgent` accepts: model clients, sessions, and servers of Atropos' shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_atropos.groups.group_runner import note_session
from hermes_atropos.model_servers.servers import Servers
from hermes_core.contracts.model import ModelClient, ModelReply, ModelRequest, RequestedCall, Usage
from hermes_core.contracts.tokens import ModelSession, RecordingModel


def model_of(server: Any, rollout_id: str) -> ModelClient | ModelSession:
    """Return the model for one conversation; a recording session if the server supports it."""
    model = server.model if isinstance(server, Servers) else server
    if isinstance(model, RecordingModel):
        session = model.session(rollout_id)
        note_session(session)
        return session
    return model if isinstance(model, ModelClient | ModelSession) else CompletionModel(model)


def reasoning_of(server: Any) -> Mapping[str, Any]:
    """Return the reasoning fields of an environment's servers; sessions and other servers add their own."""
    return server.reasoning if isinstance(server, Servers) else {}


class CompletionModel:
    """Wraps a server with `chat_completion` that answers in OpenAI's types."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The server's type, the only known fact."""
        return {"protocol": type(self._server).__name__}

    async def check(self) -> None:
        """Do nothing: such a server has no check that is free."""

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Request one completion."""
        completion = await self._server.chat_completion(
            messages=[dict(message) for message in request.conversation.messages], **request.sampling
        )
        return _reply(completion)

    async def aclose(self) -> None:
        """Do nothing: the server belongs to the caller."""


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
