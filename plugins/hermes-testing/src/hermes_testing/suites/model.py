"""The suite every model component passes: a protocol of model servers, or a model that needs no server."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pytest
import pytest_asyncio

from hermes_core.contracts.errors import ModelError
from hermes_core.contracts.model import (
    Conversation,
    ModelClient,
    ModelProvider,
    ModelReply,
    ModelRequest,
    ModelSettings,
    RequestedCall,
    ToolSchemas,
    Usage,
)
from hermes_core.contracts.rollout import StopReason
from hermes_core.contracts.task import Task
from hermes_core.contracts.tokens import ModelSession, RecordingModel
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import ModelSpec
from hermes_core.tooling import select_tools
from hermes_testing.servers import answer, serving, unreachable_url
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.watching import longest_stall

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

KEY: Final = "sk-conformance-5f1c2a9e7b"
_PROMPT: Final = {"role": "user", "content": "Say hello."}
_MANY: Final = 16


def _broken_answers(key: str) -> dict[str, bytes]:
    """Return the responses of broken servers, by kind; some echo the key that they received."""
    repeated = json.dumps({"error": f"the key was {key}"})
    return {
        "hangs up": b"",
        "500": answer("500 Internal Server Error", repeated),
        "401": answer("401 Unauthorized", repeated),
        "404": answer("404 Not Found", "nothing here", "text/plain"),
        "no JSON": answer("200 OK", "{not json"),
        "another JSON": answer("200 OK", '{"hello": [1]}'),
        "half an answer": answer("200 OK", '{"choices": []}')[:-5],
    }


class ModelSuite(ComponentSuite):
    """Behaviour of a model, used as in a run.

    Set `plugin` and `component`, and override `serve`: it yields the settings of a working server. A model without a
    server (`embedded` in its spec) needs no override; its settings then contain the suite's task. `prompt` is the
    prompt, `patience` the maximum number of seconds for a reply.
    """

    kind = "model"
    prompt: ClassVar[dict[str, Any]] = _PROMPT
    patience: ClassVar[float] = 60.0

    def serve(self) -> AbstractAsyncContextManager[ModelSettings]:
        """Start the component's server; yields the settings to reach it."""
        return contextlib.nullcontext(ModelSettings(tasks=(self.task(),)))

    def task(self) -> Task:
        """Return the task with the prompt."""
        return Task(id="conformance", messages=(dict(self.prompt),), answer="hello", solution=())

    @pytest_asyncio.fixture
    async def settings(self) -> AsyncIterator[ModelSettings]:
        """The settings of a working server, with a secret key."""
        async with self.serve() as settings:
            yield dataclasses.replace(settings, api_key=settings.api_key or KEY, max_retries=0, timeout=self.patience)

    @pytest_asyncio.fixture
    async def client(self, registry: Registry, settings: ModelSettings) -> AsyncIterator[ModelClient]:
        """A client of that server."""
        async with self._open(registry, settings) as client:
            yield client

    def test_the_provider_has_the_contract_s_method(self, registry: Registry) -> None:
        """A function, not a coroutine function, that returns the client."""
        provider = self.make(registry)
        assert callable(getattr(provider, "client", None))
        assert not asyncio.iscoroutinefunction(provider.client)

    async def test_the_client_has_the_contract_s_methods(self, client: ModelClient, spec: ModelSpec) -> None:
        """And those of a model that records token ids, if and only if the spec says so."""
        assert isinstance(client, ModelClient)
        assert isinstance(client, RecordingModel) == spec.token_level

    async def test_making_a_client_opens_no_connection(self, registry: Registry, settings: ModelSettings) -> None:
        """Planning a run creates many clients."""
        async with serving(b"") as server:
            client = self._client(registry, dataclasses.replace(settings, address=server.url))
            await client.aclose()
            await server.visit()
            assert server.connections == 1

    async def test_two_clients_are_two(self, registry: Registry, settings: ModelSettings) -> None:
        """Closing one does not affect the other."""
        async with self._open(registry, settings) as client:
            other = self._client(registry, settings)
            assert other is not client
            await other.aclose()
            await self._ask(client)

    async def test_provenance_is_plain_and_keeps_what_it_says(self, client: ModelClient) -> None:
        """It names the protocol; the first reply may add facts but change none."""
        before = json.loads(json.dumps(dict(client.provenance), allow_nan=False))
        assert isinstance(before.get("protocol"), str)
        await self._ask(client)
        assert json.loads(json.dumps(dict(client.provenance), allow_nan=False)).items() >= before.items()

    async def test_the_key_is_told_to_nobody(self, client: ModelClient, settings: ModelSettings) -> None:
        """Neither provenance nor the object's repr contains it."""
        key = settings.api_key or ""
        assert key not in json.dumps(dict(client.provenance))
        assert key not in f"{client!r}{client!s}"

    async def test_a_server_that_answers_is_accepted(self, client: ModelClient) -> None:
        """`check` returns, however often it is called."""
        await client.check()
        await client.check()

    async def test_a_reply_is_a_turn(self, client: ModelClient) -> None:
        """Text, calls, the server's stop reason, and token counts, each with its type."""
        reply = await self._ask(client)
        assert isinstance(reply, ModelReply)
        assert reply.content is None or isinstance(reply.content, str)
        assert reply.reasoning is None or isinstance(reply.reasoning, str)
        assert isinstance(reply.tool_calls, tuple)
        assert all(isinstance(call, RequestedCall) for call in reply.tool_calls)
        assert isinstance(reply.finish_reason, str)
        assert reply.finish_reason
        assert isinstance(reply.usage, Usage)
        assert min(reply.usage.prompt_tokens, reply.usage.completion_tokens) >= 0

    async def test_the_conversation_is_left_as_it_was(self, client: ModelClient) -> None:
        """It belongs to the rollout, which appends the reply."""
        conversation = Conversation([dict(self.prompt)])
        before = copy.deepcopy(conversation.messages)
        await self._talk(client).chat(self._request(conversation))
        assert conversation.messages == before

    async def test_a_rollout_runs(self, registry: Registry, client: ModelClient) -> None:
        """It runs to its end with the model's replies, without failures."""
        spec = self._rollout(registry)
        async with Runtime(registry) as runtime:
            outcome = await run_rollout(spec, runtime, client)
        assert outcome.failure is None
        assert outcome.stop_reason in {StopReason.FINAL_ANSWER, StopReason.MAX_TURNS, StopReason.TOKEN_LIMIT}
        assert outcome.turns >= 1
        assert bool(outcome.samples) == isinstance(client, RecordingModel)

    async def test_requests_at_the_same_time_are_all_answered(self, client: ModelClient) -> None:
        """Each gets its own reply."""
        replies = await asyncio.gather(*(self._ask(client, f"r{number}") for number in range(_MANY)))
        assert len({id(reply) for reply in replies}) == _MANY

    async def test_cancellation_is_passed_on_and_leaves_the_client_usable(self, client: ModelClient) -> None:
        """At whatever point it comes."""
        for steps in range(1, 12):
            asking = asyncio.create_task(self._ask(client, f"r{steps}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            if asking.done():
                await asking
                break
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert isinstance(await self._ask(client, "last"), ModelReply)

    async def test_nobody_at_the_address_is_an_error_of_the_model(
        self, registry: Registry, settings: ModelSettings, spec: ModelSpec
    ) -> None:
        """From `check` as from `chat`, and in time."""
        self._needs_server(spec)
        async with unreachable_url() as url, self._open(registry, dataclasses.replace(settings, address=url)) as client:
            await self._fails(client.check())
            await self._fails(self._ask(client))

    @pytest.mark.parametrize("said", list(_broken_answers("")))
    async def test_a_broken_server_is_an_error_of_the_model(
        self, registry: Registry, settings: ModelSettings, spec: ModelSpec, said: str
    ) -> None:
        """Whatever it says; an echoed key does not appear in the error."""
        self._needs_server(spec)
        key = settings.api_key or ""
        async with serving(_broken_answers(key)[said]) as server:
            there = dataclasses.replace(settings, address=server.url)
            async with self._open(registry, there) as client:
                assert key not in await self._fails(self._ask(client))

    async def test_closing_twice_is_fine(self, registry: Registry, settings: ModelSettings) -> None:
        """Even for a client that was never used."""
        for is_used in (False, True):
            client = self._client(registry, settings)
            if is_used:
                await self._ask(client)
            await client.aclose()
            await client.aclose()

    async def test_the_event_loop_keeps_ticking(self, client: ModelClient) -> None:
        """A request does not block it, so other rollouts continue."""
        await self._ask(client, "first")  # an import on first use does not count as a stall
        _, stall = await longest_stall(self._ask(client, "second"))
        assert stall < 1.0, "the client blocked the event loop"

    def _client(self, registry: Registry, settings: ModelSettings) -> ModelClient:
        return cast("ModelProvider", self.make(registry)).client(settings)

    @asynccontextmanager
    async def _open(self, registry: Registry, settings: ModelSettings) -> AsyncIterator[ModelClient]:
        client = self._client(registry, settings)
        try:
            yield client
        finally:
            await client.aclose()

    def _talk(self, client: ModelClient, rollout_id: str = "r0") -> ModelClient | ModelSession:
        if not isinstance(client, RecordingModel):
            return client
        session = client.session(rollout_id)
        assert isinstance(session, ModelSession), "a session has all methods of `ModelSession`"
        return session

    def _request(self, conversation: Conversation, rollout_id: str = "r0") -> ModelRequest:
        return ModelRequest(
            conversation=conversation, tools=ToolSchemas(), rollout_id=rollout_id, timeout=self.patience
        )

    async def _ask(self, client: ModelClient, rollout_id: str = "r0") -> ModelReply:
        request = self._request(Conversation([dict(self.prompt)]), rollout_id)
        async with asyncio.timeout(self.patience):
            return await self._talk(client, rollout_id).chat(request)

    async def _fails(self, asking: Any) -> str:
        with pytest.raises(ModelError) as caught:
            async with asyncio.timeout(self.patience):
                await asking
        return str(caught.value)

    def _rollout(self, registry: Registry) -> RolloutSpec:
        group = GroupPlan(group_id="g1", task=self.task(), tools=select_tools(registry, enabled_toolsets=()))
        return RolloutSpec(rollout_id="r1", group=group, limits=RolloutLimits(max_agent_turns=2))

    @staticmethod
    def _needs_server(spec: ModelSpec) -> None:
        if spec.embedded:
            pytest.skip("lacks server: the model does not need one")
