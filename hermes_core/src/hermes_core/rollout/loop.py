"""The agent loop: ask the model, run the tools it calls, until it answers or a limit ends it."""

from __future__ import annotations

import asyncio
import time

from hermes_core.contracts.model import ModelClient, ModelReply, ModelRequest
from hermes_core.contracts.rollout import StopReason
from hermes_core.contracts.tokens import ModelSession
from hermes_core.rollout.dispatch import ToolDispatcher
from hermes_core.rollout.interpretation import ParsedReply, parse_reply
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.runtime import Runtime


class AgentLoop:
    """Drives one rollout with OpenAI tool calling. `run` returns why it ended; model and sandbox errors are raised."""

    def __init__(
        self, runtime: Runtime, model: ModelClient | ModelSession, context: RolloutContext, record: RolloutRecord
    ) -> None:
        self._runtime = runtime
        self._model = model
        self._session = model if isinstance(model, ModelSession) else None  # asked once: this check is slow
        self._record = record
        self._limits = record.spec.limits
        self._dispatcher = ToolDispatcher(runtime, context, record)
        self._used_ids: dict[str, int] = {}
        self._truncated_in_a_row = 0
        self._deadline = None if self._limits.time_limit is None else time.monotonic() + self._limits.time_limit

    async def run(self) -> StopReason:
        """Run until a stop reason; the record holds the conversation so far, whatever happens."""
        try:
            async with asyncio.timeout(self._limits.time_limit) as timer:
                while self._record.turns < self._limits.max_agent_turns:
                    if (stop := await self._turn()) is not None:
                        return stop
        except TimeoutError:
            if not timer.expired():
                raise
            return StopReason.TIME_LIMIT
        return StopReason.MAX_TURNS

    async def _turn(self) -> StopReason | None:
        record = self._record
        reply = await self._ask()
        record.count_reply(reply)
        tools, parser = record.spec.group.tools, self._runtime.parser
        schemas = [] if parser is None else [tool.openai_schema() for tool in tools.specs]
        turn = parse_reply(reply, parser, schemas, self._used_ids, tools.schemas.names)
        record.conversation.append(turn.message)
        if self._session is not None:
            self._session.record_message(turn.message)
        record.final_response = turn.content or ""
        record.counters["tool_parse_errors"] += turn.malformed
        record.counters["unparsed_replies"] += turn.is_unparsed
        record.counters["truncated_replies"] += turn.truncation is not None
        self._truncated_in_a_row = 0 if turn.truncation is None else self._truncated_in_a_row + 1
        if not turn.calls and turn.complaint is None:
            record.counters["empty_replies"] += not record.final_response.strip() and reply.finish_reason != "length"
            return StopReason.TOKEN_LIMIT if reply.finish_reason == "length" else StopReason.FINAL_ANSWER
        return self._over_budget(len(turn.calls)) or await self._act(turn)

    async def _act(self, turn: ParsedReply) -> StopReason | None:
        lost = turn.truncation if turn.complaint is None else None
        for message in await self._dispatcher.run(self._record.turns, turn.calls, lost=lost):
            self._record.conversation.append(message)
        if turn.complaint is not None:
            self._record.conversation.append({"role": "user", "content": turn.complaint})
        return None

    async def _ask(self) -> ModelReply:
        spec = self._record.spec
        request = ModelRequest(
            conversation=self._record.conversation,
            tools=spec.group.tools.schemas,
            sampling=spec.sampling,
            rollout_id=spec.rollout_id,
            seed=spec.seed,
            timeout=None if self._deadline is None else max(0.001, self._deadline - time.monotonic()),
        )
        with self._record.phase("model"):
            return await self._model.chat(request)

    def _over_budget(self, calls: int) -> StopReason | None:
        counters, limits = self._record.counters, self._limits
        tokens, truncated = limits.max_total_tokens, limits.max_truncated_replies
        is_spent = tokens is not None and counters["completion_tokens"] >= tokens
        if is_spent or (truncated is not None and self._truncated_in_a_row >= truncated):
            return StopReason.TOKEN_LIMIT
        if limits.max_tool_calls is not None and counters["tool_calls_attempted"] + calls > limits.max_tool_calls:
            return StopReason.TOOL_CALL_LIMIT
        return None
