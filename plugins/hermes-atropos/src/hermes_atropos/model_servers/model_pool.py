"""The environment's model: one client per server, phase 1 (chat) or phase 2 (token ids), balanced by rollout."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from hermes_atropos.compat import load_tokenizer
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.resizable_semaphore import ResizableSemaphore
from hermes_atropos.model_servers.request_fields import check_sampling_of, new_client, sampling_of, template_kwargs_of
from hermes_core.contracts.errors import ConfigError, ModelRequestError
from hermes_core.contracts.model import Message, ModelClient, ModelReply, ModelRequest
from hermes_core.contracts.parsing import ToolCallParser
from hermes_core.contracts.tokens import Exactness, ModelSession, RecordingModel, TrainingSample
from hermes_core.discovery import Registry

if TYPE_CHECKING:
    from hermes_tokens import ChatTokenizer, GenerateClient


class ServerLane:
    """One server: its client, and its limits of concurrent requests for training and for evaluation."""

    def __init__(self, client: ModelClient, *, requests: int, eval_requests: int) -> None:
        self.client = client
        self._requests = requests
        self.slots = {"train": ResizableSemaphore(requests), "eval": ResizableSemaphore(eval_requests)}

    def weigh(self, weight: float) -> None:
        """Set this environment's share of the server's training requests."""
        self.slots["train"].resize(round(self._requests * min(1.0, weight)))


class ModelPool:
    """All servers of an environment as one `ModelClient`; a rollout stays with one server, for its prefix cache."""

    def __init__(self, lanes: Sequence[ServerLane], *, split: str = "train") -> None:
        if not lanes:
            raise ConfigError("expected at least one model server, got none", hint="openai: {base_url: …}")
        self.lanes = tuple(lanes)
        self._split = "train" if split == "train" else "eval"

    def of_split(self, split: str) -> Self:
        """Return the same servers with the limits of another split."""
        return type(self)(self.lanes, split=split)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The provenance of the first server."""
        return {**self.lanes[0].client.provenance, "servers": len(self.lanes)}

    async def check(self) -> None:
        """Check every server."""
        await asyncio.gather(*(lane.client.check() for lane in self.lanes))

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Send the request to the rollout's server."""
        lane = self._lane(request.rollout_id)
        async with lane.slots[self._split]:
            return await lane.client.chat(request)

    async def aclose(self) -> None:
        """Close every client."""
        for lane in self.lanes:
            await lane.client.aclose()

    def _lane(self, rollout_id: str) -> ServerLane:
        return self.lanes[zlib.crc32(rollout_id.encode()) % len(self.lanes)]


class RecordingModelPool(ModelPool):
    """Servers at token level; implements `RecordingModel` too."""

    def session(self, rollout_id: str) -> ModelSession:
        """Start recording a rollout on one server."""
        lane = self._lane(rollout_id)
        client = lane.client
        assert isinstance(client, RecordingModel)
        return _LimitedSession(client.session(rollout_id), lane.slots[self._split])


class _LimitedSession:
    """A session that waits for its turn at the server."""

    def __init__(self, session: ModelSession, slots: ResizableSemaphore) -> None:
        self._session = session
        self._slots = slots

    async def chat(self, request: ModelRequest) -> ModelReply:
        async with self._slots:
            return await self._session.chat(request)

    def record_message(self, message: Message) -> None:
        self._session.record_message(message)

    def samples(self) -> Sequence[TrainingSample]:
        return self._session.samples()

    def exactness(self) -> Exactness:
        return self._session.exactness()

    def managed_state(self) -> Mapping[str, Any]:
        return self._session.managed_state()


def open_model_pool(config: HermesAgentEnvConfig, servers: Sequence[Any], registry: Registry) -> ModelPool:
    """Create the clients for an environment's server configs, without connecting."""
    kinds = {server.server_type for server in servers}
    if len(kinds) > 1:
        raise ConfigError(f"expected servers of one server_type, got {' and '.join(sorted(kinds))}")
    if kinds == {"trl"}:
        raise ConfigError("server_type trl gives no logprobs", hint="server_type: vllm, sglang or openai")
    is_chat = kinds == {"openai"}
    tokenizer = None if is_chat else _chat_tokenizer(config)
    parser = None if is_chat else _parser(config, registry)
    clients = [
        _chat_client(server) if tokenizer is None else _token_client(config, server, tokenizer, parser)
        for server in servers
    ]
    lanes = [
        ServerLane(client, requests=server.num_max_requests_at_once, eval_requests=server.num_requests_for_eval)
        for client, server in zip(clients, servers, strict=True)
    ]
    return ModelPool(lanes) if is_chat else RecordingModelPool(lanes)


def _chat_client(server: Any) -> ModelClient:
    from hermes_models import OpenAIChatClient

    return OpenAIChatClient(
        base_url=server.base_url or "",
        model_name=server.model_name,
        api_key=server.api_key or None,
        timeout=float(server.timeout),
    )


def _parser(config: HermesAgentEnvConfig, registry: Registry) -> ToolCallParser | None:
    if config.tool_call_parser is None:
        return None
    made = registry.create("parser", config.tool_call_parser, config.tool_call_parser_options)
    return cast("ToolCallParser", made)


def _token_client(
    config: HermesAgentEnvConfig, server: Any, tokenizer: ChatTokenizer, parser: ToolCallParser | None
) -> ModelClient:
    from hermes_tokens import TokenModel

    return TokenModel(
        _generate_client(config, server),
        tokenizer,
        parser=parser,
        template_kwargs=template_kwargs_of(config, [server], tokenizer),
        allow_branches=config.allow_branches,
        sampling=sampling_of(config, [server]),
        max_tokens=config.max_token_length,
    )


def _generate_client(config: HermesAgentEnvConfig, server: Any) -> GenerateClient:
    def make_client(protocol: str) -> GenerateClient:
        return new_client(
            protocol,
            server.base_url or "",
            model_name="" if server.model_name == "default" else server.model_name,
            api_key=server.api_key or None,
            timeout=float(server.timeout),
            logprobs_mode=config.logprobs_mode,
        )

    if config.generate_protocol != "auto":
        return make_client(config.generate_protocol)
    if server.server_type == "sglang":
        return make_client("sglang")
    return EitherVllm(make_client("vllm"), make_client("atropos"), sampling_of(config, [server]))


class EitherVllm:
    """A server of type vllm: stock vLLM or Atropos' own server, determined by the check."""

    def __init__(self, stock: GenerateClient, custom: GenerateClient, sampling: Mapping[str, Any]) -> None:
        self._candidates = (stock, custom)
        self._sampling = sampling
        self._chosen: GenerateClient | None = None

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The provenance of the client in use."""
        return (self._chosen or self._candidates[0]).provenance

    async def check(self) -> None:
        """Determine the kind of server, and whether it supports the sampling parameters.

        Raises the error of stock vLLM's check if it is neither.
        """
        stock, custom = self._candidates
        try:
            await stock.check()
            self._chosen = stock
        except ModelRequestError as error:
            try:
                await custom.check()
            except ModelRequestError:
                raise error from None
            check_sampling_of("atropos", self._sampling)
            self._chosen = custom

    async def generate(self, request: Any) -> Any:
        """Sample one turn."""
        if self._chosen is None:
            await self.check()
        assert self._chosen is not None
        return await self._chosen.generate(request)

    async def aclose(self) -> None:
        """Close both."""
        for client in self._candidates:
            await client.aclose()


def _chat_tokenizer(config: HermesAgentEnvConfig) -> ChatTokenizer:
    from hermes_tokens import ChatTokenizer

    if Path(config.tokenizer_name).is_dir():
        return ChatTokenizer.load(Path(config.tokenizer_name))
    return ChatTokenizer.of(load_tokenizer(config.tokenizer_name))
