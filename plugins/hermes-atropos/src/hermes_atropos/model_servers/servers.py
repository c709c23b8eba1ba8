"""`self.server` for an environment's own code: hermes-agent's methods on top of the model clients.

It answers in the types of the openai package, as atroposlib's ServerManager does. No health check samples anything, a
refused request is sent once, and the parsers of this framework read the calls.
"""

from __future__ import annotations

import asyncio
import importlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from hermes_atropos.author_code.own_rollouts import OwnRollouts
from hermes_atropos.groups.group_runner import note_session
from hermes_atropos.groups.item_run import ITEM
from hermes_atropos.model_servers.model_pool import ModelPool, RecordingModelPool
from hermes_atropos.model_servers.nodes import as_nodes
from hermes_atropos.model_servers.request_fields import with_reasoning
from hermes_core.contracts.errors import ConfigError, ModelError
from hermes_core.contracts.model import Conversation, Message, ModelReply, ModelRequest, ToolSchemas
from hermes_core.contracts.parsing import ToolCallParser
from hermes_core.contracts.tokens import ModelSession
from hermes_core.rollout import ParsedReply, parse_reply

_NOT_SENT = frozenset({"messages", "tools", "n", "split", "extra_body", "model", "skip_reasoning", "timeout"})


class ServerHandle:
    """One server, as visible to an environment's code."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.server_healthy = True

    async def wandb_metrics(self, metrics_dict: dict[str, Any] | None, server_name: str | None) -> dict[str, Any]:  # noqa: ARG002 - atroposlib's signature
        """Return the metrics unchanged; durations are in every rollout's record."""
        return metrics_dict or {}


class Servers:
    """All servers of an environment.

    The runtime's parser, if any, reads raw text. Failures raise a `ModelError`; nothing is retried here, because the
    clients retry. `own` are the rollouts of the environment's own code. `reasoning` goes into every request without
    reasoning fields of its own; `skip_reasoning=True` omits it.
    """

    def __init__(
        self, model_pool: ModelPool, configs: Sequence[Any], own: OwnRollouts, reasoning: Mapping[str, Any]
    ) -> None:
        self._model_pool = model_pool
        self._parser = own.runtime.parser
        self.own = own
        self.reasoning = reasoning
        self.servers = [ServerHandle(config) for config in configs]

    @property
    def model(self) -> ModelPool:
        """The servers as one model client."""
        return self._model_pool

    @property
    def is_recording(self) -> bool:
        """Whether the servers return token ids and logprobs: phase 2."""
        return isinstance(self._model_pool, RecordingModelPool)

    @property
    def own_model(self) -> ModelPool:
        """The model for an own agent loop."""
        return self._model_pool.of_split("eval")

    def state(self) -> None:
        """Return None: without a session no tokens are recorded."""
        return

    async def chat_completion(self, **options: Any) -> Any:
        """Request `n` chat completions; takes the options of `chat.completions.create`, and `split`."""
        model_pool = self._model_pool.of_split(str(options.get("split", "train")))
        count = int(options.get("n") or 1)
        requests = [_request(options, self.reasoning) for _ in range(count)]
        with _item_notes():
            replies = await asyncio.gather(*(model_pool.chat(request) for request in requests))
        schemas = list(options.get("tools") or ())
        return _completion(replies, [parse_reply(reply, self._parser, schemas) for reply in replies], options)

    async def completion(self, **_options: Any) -> Any:
        """Raise: only chat completions are supported."""
        raise ConfigError("self.server.completion is not supported", hint="use self.server.chat_completion")

    async def tokens_and_logprobs_completion(self, **_options: Any) -> Any:
        """Raise: token ids need a session."""
        raise ConfigError(
            "self.server.tokens_and_logprobs_completion is not supported", hint="use self.server.managed_server()"
        )

    @asynccontextmanager
    async def managed_server(
        self, *, tool_call_parser: ToolCallParser | None = None, **_ignored: Any
    ) -> AsyncIterator[ManagedSession]:
        """Open a session that records the tokens of one conversation; `tokenizer` is accepted and not used."""
        if not isinstance(self._model_pool, RecordingModelPool):
            raise NotImplementedError("servers of type openai give no token ids; use server_type vllm or sglang")
        session = self._model_pool.session(uuid.uuid4().hex)
        note_session(session)
        yield ManagedSession(session, tool_call_parser or self._parser, self.own, self.reasoning)

    async def update_weight(self, weight: float) -> None:
        """Set this environment's share of the servers."""
        for lane in self._model_pool.lanes:
            lane.weigh(weight)


class ManagedSession:
    """hermes-agent's ManagedServer: chat completions with recorded tokens."""

    def __init__(
        self, session: ModelSession, parser: ToolCallParser | None, own: OwnRollouts, reasoning: Mapping[str, Any]
    ) -> None:
        self.own_model = session
        self.own = own
        self.reasoning = reasoning
        self._parser = parser
        self._used_ids: dict[str, int] = {}

    async def chat_completion(self, **options: Any) -> Any:
        """Sample one turn of the conversation."""
        if int(options.get("n") or 1) != 1:
            raise ConfigError("expected n=1, because a session has one conversation", hint="open a session for each")
        with _item_notes():
            reply = await self.own_model.chat(_request(options, self.reasoning))
        turn = parse_reply(reply, self._parser, list(options.get("tools") or ()), self._used_ids)
        self.own_model.record_message(turn.message)
        return _completion([reply], [turn], options)

    def get_state(self) -> dict[str, Any]:
        """Return `{"nodes": [...]}` with one node for each trainable sequence."""
        return as_nodes(self.own_model.managed_state())

    state = get_state


@contextmanager
def _item_notes() -> Iterator[None]:
    """Record the model's answers for the current item of `process`, even if the author's code handles an error."""
    item_run = ITEM.get()
    try:
        yield
    except ModelError as error:
        if item_run is not None:
            item_run.note_error(error)
        raise
    if item_run is not None:
        item_run.note_answer()


def _request(options: Mapping[str, Any], reasoning: Mapping[str, Any]) -> ModelRequest:
    messages: Sequence[Message] = options.get("messages") or ()
    if not messages:
        raise ConfigError("expected messages, got none", hint="chat_completion(messages=[…])")
    sampling = {key: value for key, value in options.items() if key not in _NOT_SENT and value is not None}
    sampling |= options.get("extra_body") or {}
    return ModelRequest(
        conversation=Conversation(messages),
        tools=ToolSchemas.of(options.get("tools") or ()),
        sampling=sampling if options.get("skip_reasoning") else with_reasoning(sampling, reasoning),
        rollout_id=uuid.uuid4().hex,
        timeout=options.get("timeout"),
    )


def _completion(replies: Sequence[ModelReply], turns: Sequence[ParsedReply], options: Mapping[str, Any]) -> Any:
    types: Any = importlib.import_module("openai.types.chat")
    choices = [_choice(number, *each) for number, each in enumerate(zip(replies, turns, strict=True))]
    prompt, sampled = (sum(getattr(r.usage, n) for r in replies) for n in ("prompt_tokens", "completion_tokens"))
    usage = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
    return types.ChatCompletion.model_validate(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": str(options.get("model") or ""),
            "choices": choices,
            "usage": usage,
        }
    )


def _choice(number: int, reply: ModelReply, turn: ParsedReply) -> dict[str, Any]:
    is_whole = reply.finish_reason != "length"  # a truncated turn stays marked as truncated, with or without calls
    finish = "tool_calls" if turn.calls and is_whole else reply.finish_reason
    known = {"stop", "length", "tool_calls", "content_filter", "function_call"}
    return {
        "index": number,
        "message": turn.message,
        "finish_reason": finish if finish in known else "stop",
        "logprobs": None,
    }
