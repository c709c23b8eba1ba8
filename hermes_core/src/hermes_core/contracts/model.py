"""The conversation with a model, and the contract of a model client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes_core.contracts.task import Message as Message  # noqa: PLC0414 - also a name of this module

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ToolCallParser
    from hermes_core.contracts.task import Task


def encode(value: object) -> bytes:
    """Serialise to the compact JSON that goes over the wire; lone surrogates become replacement characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Conversation:
    """An append-only list of messages, each serialised once.

    A request of turn n would otherwise serialise n messages, which makes long rollouts quadratic.
    """

    __slots__ = ("_encoded", "_messages")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._encoded: list[bytes] = []
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message; it must not be changed afterwards."""
        self._messages.append(message)
        self._encoded.append(encode(message))

    @property
    def messages(self) -> Sequence[Message]:
        """The messages, oldest first; read only."""
        return self._messages

    @property
    def encoded_messages(self) -> Sequence[bytes]:
        """Each message as JSON, serialised when it was added; read only."""
        return self._encoded

    def json_array(self) -> bytes:
        """Return the messages as one JSON array."""
        return b"[" + b",".join(self._encoded) + b"]"

    def __len__(self) -> int:
        return len(self._messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchemas:
    """The tools a model is offered: names, and the request's `tools` array serialised once per group (b"" if none)."""

    names: tuple[str, ...] = ()
    encoded: bytes = b""

    @classmethod
    def of(cls, schemas: Sequence[Mapping[str, Any]]) -> ToolSchemas:
        """Build from OpenAI tool schemas."""
        names = tuple(schema["function"]["name"] for schema in schemas)
        return cls(names=names, encoded=encode(list(schemas)) if schemas else b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One turn's request. `sampling` holds further top-level fields (temperature, max_tokens, extra_body's content)."""

    conversation: Conversation
    tools: ToolSchemas
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rollout_id: str = ""
    seed: int = 0
    timeout: float | None = None
    """Seconds until the rollout's own deadline, None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """A tool call as the model wrote it; `arguments` is its text, valid JSON or not.

    `wire_id` is the id in the model's text, if a parser read one and `id` had to differ to be unique.
    """

    id: str
    name: str
    arguments: str
    wire_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One assistant turn. `finish_reason` is the server's word: stop, length, tool_calls, content_filter."""

    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[RequestedCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()


@runtime_checkable
class ModelClient(Protocol):
    """Talks to one model. One object per runtime, shared by its rollouts, used on its event loop."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What is recorded with the rollout: protocol, address without credentials, model name."""

    async def check(self) -> None:
        """Raise a `ModelError` unless the server answers and accepts the credentials; called once before a run."""

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one assistant turn; raises a `ModelError` after its own bounded retries."""

    async def aclose(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What a run says about its model; a provider uses what it needs. `options` are the run's further fields."""

    address: str = ""
    model_name: str = ""
    api_key: str | None = None
    timeout: float = 600.0
    max_retries: int = 4
    seed: int = 0
    tasks: Sequence[Task] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    choose_parser: Callable[[str], ToolCallParser | None] | None = None
    """Returns the run's parser for a chat template: a client that renders prompts may let it declare the tools."""


class ModelProvider(Protocol):
    """A model component: a class without constructor arguments, or any object with this method."""

    def client(self, settings: ModelSettings) -> ModelClient:
        """Make a client; opens no connection."""
