"""`AtroposAgent`: an agent loop with tool calls in text, until a final answer or the step limit."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hermes_atropos.agent.react import ReactTurn, observation, read_turn, system_prompt
from hermes_atropos.agent.results import AgentConfig, AgentResult, AgentStep, SequenceData
from hermes_atropos.agent.server import model_of, reasoning_of
from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.model import Message, ModelClient, ModelReply, ModelRequest, ToolSchemas
from hermes_core.contracts.rollout import StopReason
from hermes_core.contracts.task import Task
from hermes_core.contracts.tokens import ModelSession
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutRecord, RolloutSpec
from hermes_core.tooling import ToolSelection
from hermes_tools.agent_tools import ToolCall, ToolRegistry, ToolResult

ExecuteTool = Callable[[ToolCall], Awaitable[ToolResult]]
RunCalls = Callable[[int, Sequence[ToolCall]], Awaitable[list[ToolResult]]]
"""Runs the calls of one turn (its number from 1) and returns one result each, in order."""

NO_TOOLS: Final = ToolSelection(specs=(), schemas=ToolSchemas(), drawn=())
_ENDS: Final = {
    StopReason.TOKEN_LIMIT: "Reached the token limit",
    StopReason.TIME_LIMIT: "Reached the time limit",
    StopReason.TOOL_CALL_LIMIT: "Reached the limit of tool calls",
}


class AtroposAgent:
    """An agent that works in text, for any server. One object runs one conversation.

    `server` is an environment's `self.server`, a model client or a model session. `tools` are listed in the prompt;
    `execute_tool` makes the calls (default: the registry). `tokenizer` is accepted for hermes-agent's callers and not
    used.
    """

    def __init__(
        self,
        server: Any,
        tools: ToolRegistry | None = None,
        config: AgentConfig | None = None,
        tokenizer: Any = None,
        execute_tool: ExecuteTool | None = None,
    ) -> None:
        self.server = server
        self.tools = tools or ToolRegistry()
        self.config = config or AgentConfig()
        self.tokenizer = tokenizer
        self._execute = execute_tool or self.tools.execute
        self._made = 0

    async def run(self, task: str, initial_messages: Sequence[Message] = ()) -> AgentResult:
        """Work on a task; a failure of the server becomes the result's error, cancellation is raised.

        `initial_messages` replace the system prompt and precede the task.
        """
        opening = list(initial_messages) or [{"role": "system", "content": self._build_system_prompt()}]
        record = self._record([*opening, {"role": "user", "content": task}])
        loop = ReactLoop(record, self.config, self._run_calls)
        error: HermesError | None = None
        model = model_of(self.server, record.spec.rollout_id)
        record.session = model if isinstance(model, ModelSession) else None
        try:
            record.stop_reason = await loop.run(model)
        except HermesError as raised:
            error = raised
        return loop.result(error)

    async def run_single_turn(self, messages: Sequence[Message], execute_tools: bool = True) -> AgentStep:  # noqa: FBT001, FBT002 - hermes-agent's signature
        """Sample one turn of a conversation and, with `execute_tools`, run its calls."""
        record = self._record(list(messages))
        loop = ReactLoop(record, self.config, self._run_calls)
        turn = await loop.ask(model_of(self.server, record.spec.rollout_id))
        if execute_tools and (turn.calls or turn.problems):
            await loop.act(turn)
        return loop.steps[-1]

    def _build_system_prompt(self) -> str:
        return system_prompt(self.tools.get_prompt_tool_definitions_json(), self.config.system_prompt)

    def _record(self, messages: Sequence[Message]) -> RolloutRecord:
        task = Task(id="agent", messages=tuple(messages))
        sampling: dict[str, Any] = {**reasoning_of(self.server), "temperature": self.config.temperature}
        if self.config.max_tokens is not None:
            sampling["max_tokens"] = self.config.max_tokens
        return RolloutRecord(
            RolloutSpec(
                rollout_id=f"ag_{uuid.uuid4().hex[:16]}",
                group=GroupPlan(group_id="agent", task=task, tools=NO_TOOLS),
                limits=RolloutLimits(max_agent_turns=self.config.max_steps),
                sampling=sampling,
            )
        )

    async def _run_calls(self, _turn: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        results = []
        for call in calls:
            if self._made:
                await pause(self.config.tool_delay_s)
            self._made += 1
            results.append(await self._execute(call))
        return results


class ReactLoop:
    """The agent loop on a rollout's record; `run_calls` runs the calls of one turn."""

    def __init__(
        self, record: RolloutRecord, config: AgentConfig, run_calls: RunCalls, *, with_metadata: bool = False
    ) -> None:
        self._record = record
        self._config = config
        self._run_calls = run_calls
        self._with_metadata = with_metadata
        self._finish_reason = "stop"
        self._truncated_in_a_row = 0
        self.steps: list[AgentStep] = []
        limit = record.spec.limits.time_limit
        self._deadline = None if limit is None else time.monotonic() + limit

    async def run(self, model: ModelClient | ModelSession) -> StopReason:
        """Run until a stop reason; errors of the model and of the sandbox propagate."""
        try:
            async with asyncio.timeout(self._record.spec.limits.time_limit) as timer:
                while self._record.turns < self._record.spec.limits.max_agent_turns:
                    stop = await self._turn(model)
                    if stop is not None:
                        return stop
        except TimeoutError:
            if not timer.expired():
                raise
            return StopReason.TIME_LIMIT
        return StopReason.MAX_TURNS

    async def ask(self, model: ModelClient | ModelSession) -> ReactTurn:
        """Sample one turn and record it."""
        record = self._record
        reply = await self._sample(model)
        record.count_reply(reply)
        turn = read_turn(reply, record.turns)
        self._finish_reason = reply.finish_reason
        self._truncated_in_a_row = self._truncated_in_a_row + 1 if turn.is_truncated else 0
        record.counters["truncated_replies"] += turn.is_truncated
        message: Message = {"role": "assistant", "content": turn.message}
        if reply.reasoning and reply.reasoning != turn.message:
            message["reasoning_content"] = reply.reasoning
        record.conversation.append(message)
        record.counters["tool_parse_errors"] += len(turn.problems)
        if not turn.calls and not turn.problems:
            record.final_response = turn.answer
        self.steps.append(
            AgentStep(step_number=record.turns, assistant_message=turn.message, tool_calls=list(turn.calls))
        )
        return turn

    async def act(self, turn: ReactTurn) -> None:
        """Run a turn's calls and append their results."""
        results = await self._run_calls(self._record.turns, turn.calls) if turn.calls else []
        self.steps[-1].tool_results = [*results, *turn.problems]
        text = observation(self.steps[-1].tool_results, with_metadata=self._with_metadata)
        self._record.conversation.append({"role": "user", "content": text})

    def result(self, error: BaseException | None = None) -> AgentResult:
        """Return the result of the run in hermes-agent's shape."""
        record, stop = self._record, self._record.stop_reason
        problem: str | None = None
        failure = error or record.failure
        if failure is not None:
            problem = f"Generation error: {getattr(failure, 'message', failure)}"
        elif stop is StopReason.MAX_TURNS:
            problem = f"Reached maximum steps ({record.spec.limits.max_agent_turns})"
        elif stop is not StopReason.FINAL_ANSWER:
            problem = _ENDS.get(stop, str(stop)) if stop is not None else "The run was not finished"
        nodes = [] if record.session is None else list(record.session.managed_state()["nodes"])
        data = SequenceData.of_node(nodes[-1]) if nodes else None
        if self.steps:
            self.steps[-1].sequence_data = data
        return AgentResult(
            success=problem is None,
            final_response=record.final_response,
            steps=tuple(self.steps),
            total_tokens=record.counters["completion_tokens"],
            error=problem,
            metadata={"stop_reason": None if stop is None else str(stop), "branches": len(nodes)},
            trajectory_data=data,
        )

    async def _turn(self, model: ModelClient | ModelSession) -> StopReason | None:
        turn = await self.ask(model)
        if not turn.calls and not turn.problems:
            return StopReason.TOKEN_LIMIT if self._finish_reason == "length" else StopReason.FINAL_ANSWER
        stop = self._over_budget(len(turn.calls))
        if stop is None:
            await self.act(turn)
        return stop

    async def _sample(self, model: ModelClient | ModelSession) -> ModelReply:
        spec = self._record.spec
        request = ModelRequest(
            conversation=self._record.conversation,
            tools=ToolSchemas(),  # they are in the prompt
            sampling=spec.sampling,
            rollout_id=spec.rollout_id,
            seed=spec.seed,
            timeout=None if self._deadline is None else max(0.001, self._deadline - time.monotonic()),
        )
        with self._record.phase("model"):
            return await model.chat(request)

    def _over_budget(self, calls: int) -> StopReason | None:
        counters, limits = self._record.counters, self._record.spec.limits
        tokens, truncated = limits.max_total_tokens, limits.max_truncated_replies
        if tokens is not None and counters["completion_tokens"] >= tokens:
            return StopReason.TOKEN_LIMIT
        if truncated is not None and self._truncated_in_a_row >= truncated:
            return StopReason.TOKEN_LIMIT
        if limits.max_tool_calls is not None and counters["tool_calls_attempted"] + calls > limits.max_tool_calls:
            return StopReason.TOOL_CALL_LIMIT
        return None


async def pause(seconds: float) -> None:
    """Wait between two calls."""
    if seconds > 0:
        await asyncio.sleep(seconds)
