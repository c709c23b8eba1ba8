"""Runs one rollout, from its sandbox to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import cast

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_core.contracts.events import RolloutFinished, RolloutStarted
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.rollout import RolloutOutcome, StopReason
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.contracts.tokens import ModelSession, RecordingModel
from hermes_core.rollout.loop import AgentLoop
from hermes_core.rollout.plan import RolloutSpec
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.runtime import Runtime
from hermes_core.rollout.task_setup import set_up
from hermes_core.rollout.verification.integrity import Seal
from hermes_core.rollout.verification.scoring import settle_loss, verify
from hermes_core.specs import VerifierSpec

Agent = Callable[[Runtime, ModelClient | ModelSession, RolloutContext, RolloutRecord], Awaitable[StopReason]]
"""Runs the model's part of a rollout and returns why it ended; errors of model and sandbox are raised.

It calls `record.count_reply` with each reply of the model: turns and tokens are counted by that.
"""


async def call_tools(
    runtime: Runtime, model: ModelClient | ModelSession, context: RolloutContext, record: RolloutRecord
) -> StopReason:
    """Run with OpenAI tool calling: the default agent."""
    return await AgentLoop(runtime, model, context, record).run()


async def run_rollout(
    spec: RolloutSpec,
    runtime: Runtime,
    model: ModelClient,
    *,
    agent: Agent = call_tools,
    on_turn: Callable[[str], None] = lambda _: None,
) -> RolloutOutcome:
    """Run one rollout and return its one outcome; `on_turn` is called with its id at each reply of the model.

    Failures inside are outcomes too. Only two things are raised: cancellation (after clean-up, and after
    observers got the outcome `cancelled`) and errors that would hit every other rollout as well (`fatal`).
    """
    record = RolloutRecord(spec, on_turn=on_turn)
    record.provenance["model"] = dict(model.provenance)
    if isinstance(model, RecordingModel):
        record.session = model.session(spec.rollout_id)
    started = RolloutStarted(rollout_id=spec.rollout_id, task_id=spec.task.id, group_id=spec.group.group_id)
    runtime.registry.fire("hermes_rollout_started", started)
    try:
        await _RolloutRun(runtime, model, record, agent).run()
    except asyncio.CancelledError:
        record.stop_reason = StopReason.CANCELLED
        _finish(runtime, record)
        raise
    return _finish(runtime, record)


def _finish(runtime: Runtime, record: RolloutRecord) -> RolloutOutcome:
    outcome = record.outcome()
    if runtime.registry.listens("hermes_rollout_finished"):
        event = RolloutFinished(rollout_id=outcome.rollout_id, outcome=outcome.to_json())
        runtime.registry.fire("hermes_rollout_finished", event)
    return outcome


class _RolloutRun:
    """The phases of one rollout, in order: sandbox, task setup, agent, verification, clean-up."""

    def __init__(self, runtime: Runtime, model: ModelClient, record: RolloutRecord, agent: Agent) -> None:
        self._runtime = runtime
        self._model = model
        self._record = record
        self._agent = agent
        self._task = record.spec.task

    async def run(self) -> None:
        """Run all phases; the sandbox is removed afterwards, however they end."""
        try:
            async with AsyncExitStack() as stack:
                await self._phases(stack)
        except HermesError as error:
            if error.fatal:
                raise
            self._record.fail(error)
        except Exception as error:  # noqa: BLE001 - the boundary between one rollout and the run
            self._record.fail(error)

    async def _phases(self, stack: AsyncExitStack) -> None:
        sandbox = await self._open(stack) if self._needs_sandbox() else None
        record = self._record
        context = RolloutContext(self._runtime, rollout_id=record.spec.rollout_id, sandbox=sandbox)
        stack.callback(context.close)
        seal, lost = Seal(), None
        try:
            if sandbox is not None:
                with record.phase("sandbox_start"):
                    await set_up(self._task, sandbox)
            seal = await Seal.of(self._runtime, self._task, sandbox)
            record.stop_reason = await self._agent(self._runtime, record.session or self._model, context, record)
        except HermesError as error:
            if error.fatal:
                raise
            record.fail(error)  # and verify: a context overflow is judged like any other end
            lost = error if isinstance(error, BackendError) else None
        if sandbox is not None:
            self._note(sandbox)
        context.close()
        judge = RolloutContext(self._runtime, rollout_id=record.spec.rollout_id, sandbox=sandbox)
        judge.state.update(context.state)
        stack.callback(judge.close)
        if lost is None:
            await verify(self._runtime, judge, record, seal)
        else:
            await settle_loss(lost, self._runtime, judge, record, seal)

    def _needs_sandbox(self) -> bool:
        task = self._task
        if task.files or task.setup or any(tool.needs_sandbox for tool in self._record.spec.group.tools.specs):
            return True
        if task.verifier is None:
            return False
        return cast("VerifierSpec", self._runtime.registry.spec("verifier", task.verifier.name)).needs_sandbox

    async def _open(self, stack: AsyncExitStack) -> Sandbox:
        spec = self._runtime.sandbox_for(self._task, rollout_id=self._record.spec.rollout_id)
        with self._record.phase("sandbox_start"):
            sandbox = await stack.enter_async_context(self._runtime.open_sandbox(spec))
        self._note(sandbox)
        stack.callback(self._note, sandbox)
        return sandbox

    def _note(self, sandbox: Sandbox) -> None:
        self._record.provenance["sandbox"] = dict(sandbox.provenance)
