"""Runs the tool calls of one turn: checks names and arguments, calls tools, shortens and records results."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.events import ToolCalled
from hermes_core.contracts.model import Message, RequestedCall, encode
from hermes_core.contracts.sandbox import Recoverable
from hermes_core.contracts.tool import ToolResult
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.plugin_calls.plugin_guard import PluginEscapeError
from hermes_core.rollout.plugin_calls.tool_runtime import BoundTool
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.runtime import Runtime
from hermes_core.tooling.arguments import ArgumentsError, unknown_tool_answer

T = TypeVar("T")


class ToolDispatcher:
    """Dispatches one rollout's calls. A failure of a tool is answered to the model; a lost sandbox ends the rollout."""

    def __init__(self, runtime: Runtime, context: RolloutContext, record: RolloutRecord) -> None:
        self._runtime = runtime
        self._context = context
        self._record = record
        sandbox: object = context.sandbox_or_none
        self._recoverable = sandbox if sandbox is not None and isinstance(sandbox, Recoverable) else None
        self._offered = {spec.name: runtime.tool(spec.name) for spec in record.spec.group.tools.specs}

    async def run(self, turn: int, calls: Sequence[RequestedCall], *, lost: str | None = None) -> list[Message]:
        """Run the calls in order, neighbours that allow it in parallel, and return one tool message each.

        With `lost`, the last call is not made but answered with that text.
        """
        contents: list[str] = []
        for together, batch in itertools.groupby(calls if lost is None else calls[:-1], key=self._is_parallel_safe):
            if together:
                contents += await self._together(turn, list(batch))
            else:
                contents += [await self._time(self._one(turn, call)) for call in batch]
        if lost is not None:
            self._record.counters.update(tool_calls_attempted=1, invalid_arguments=1)
            contents.append(self._refuse(turn, calls[-1], lost))
        specs = [bound.spec if (bound := self._offered.get(call.name)) else None for call in calls]
        contents = await self._runtime.budget.fit_turn(contents, specs=specs, sandbox=self._context.sandbox_or_none)
        return [
            {"role": "tool", "tool_call_id": call.id, "content": content}
            for call, content in zip(calls, contents, strict=True)
        ]

    def _is_parallel_safe(self, call: RequestedCall) -> bool:
        bound = self._offered.get(call.name)
        return bound is not None and bound.spec.parallel_safe

    async def _together(self, turn: int, calls: list[RequestedCall]) -> list[str]:
        if len(calls) == 1:
            return [await self._time(self._one(turn, calls[0]))]
        tasks = [asyncio.ensure_future(self._one(turn, call)) for call in calls]
        try:
            return await self._time(asyncio.gather(*tasks))
        except BaseException:
            # The siblings of a call that failed or was cancelled must not go on unnoticed.
            for task in tasks:
                task.cancel()
            await run_uncancelled(asyncio.wait(tasks))
            raise

    async def _time(self, awaitable: Awaitable[T]) -> T:
        with self._record.phase("tool"):
            return await awaitable

    async def _one(self, turn: int, call: RequestedCall) -> str:
        counters = self._record.counters
        counters["tool_calls_attempted"] += 1
        bound = self._offered.get(call.name)
        if bound is None:
            counters["unknown_tools"] += 1
            return self._refuse(turn, call, unknown_tool_answer(call.name, tuple(self._offered)))
        try:
            arguments = self._runtime.arguments.prepare(bound.spec, call.arguments)
        except ArgumentsError as problem:
            counters["invalid_arguments"] += 1
            return self._refuse(turn, call, str(problem))
        counters["tool_calls_schema_valid"] += 1
        return await self._invoke(turn, call, bound, arguments)

    def _refuse(self, turn: int, call: RequestedCall, answer: str) -> str:
        self._note(turn, call, error=answer, result="")
        return encode({"error": answer}).decode()

    async def _invoke(self, turn: int, call: RequestedCall, bound: BoundTool, arguments: dict[str, Any]) -> str:
        started = time.perf_counter()
        result = await self._call_tool(bound, arguments)
        seconds = time.perf_counter() - started
        self._record.counters["tool_calls_executed_ok" if result.error is None else "tool_calls_exec_error"] += 1
        if result.error is not None:
            self._note(turn, call, error=result.error, result=result.content)
        rollout_id = self._context.rollout_id
        event = ToolCalled(rollout_id=rollout_id, turn=turn, name=call.name, seconds=seconds, error=result.error)
        self._runtime.registry.fire("hermes_tool_called", event)
        return await self._runtime.budget.fit(result.content, spec=bound.spec, sandbox=self._context.sandbox_or_none)

    async def _call_tool(self, bound: BoundTool, arguments: dict[str, Any]) -> ToolResult:
        sandbox = self._recoverable
        recoveries = sandbox.recoveries if sandbox is not None else 0
        try:
            return await bound.invoke(arguments, self._context)
        except SandboxLostError as error:
            if sandbox is None or (answer := await sandbox.recover(recoveries)) is None:
                raise
            self._record.counters["sandbox_recoveries"] += 1
            return ToolResult(content=encode({"error": answer}).decode(), error=str(error))
        except BackendError:
            raise
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a tool's failure is the model's to read
            text = str(error) if isinstance(error, PluginEscapeError) else f"{type(error).__name__}: {error}"
            return ToolResult(content=encode({"error": f"Tool execution failed: {text}"}).decode(), error=text)

    def _note(self, turn: int, call: RequestedCall, *, error: str, result: str) -> None:
        self._record.counters["tool_errors"] += 1
        self._record.tool_error(turn=turn, name=call.name, arguments=call.arguments, error=error, result=result)
