"""Cancellation anywhere leaks nothing: no process, no directory, no task."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from hermes_core.contracts.model import ModelReply, RequestedCall
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Task, TaskFile
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling.selection import select_tools

COMMAND = "setsid sleep 1234 & sleep 1234"


class Talker:
    """Calls a tool in every turn."""

    provenance = {}  # noqa: RUF012 - never changed

    def __init__(self, name, arguments):
        self._call = RequestedCall(id="c", name=name, arguments=json.dumps(arguments))

    async def check(self):
        return None

    async def chat(self, request):
        await asyncio.sleep(0)
        return ModelReply(content=None, tool_calls=(self._call,))

    async def aclose(self):
        return None


def spec_for(registry, toolset, name="r1", **task_fields):
    task = Task(id="t", messages=({"role": "user", "content": "x"},), **task_fields)
    tools = select_tools(registry, enabled_toolsets=[toolset])
    return RolloutSpec(rollout_id=name, group=GroupPlan(group_id="g", task=task, tools=tools))


def processes_of(folder):
    """Return the command lines of live processes that have to do with the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ, command = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in environ + command:
            found.append(command)
    return found


@pytest.fixture
def root():
    """A directory for sandboxes that the unprivileged user of bubblewrap can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.parametrize("isolation", ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
async def test_a_rollout_cancelled_after_any_number_of_steps_leaves_nothing(registry, root, steps, isolation):
    """hermes-agent's defect: no clean-up when the rollout was cancelled."""
    backend = Ref(kind="backend", name="local", options={"root_dir": str(root)})
    fields = {"files": (TaskFile(path="a", data=b"a"),), "setup": ("true",)}
    async with Runtime(registry, backend=backend, sandbox=SandboxSpec(isolation=isolation)) as runtime:
        spec = spec_for(registry, "terminal", **fields)
        task = asyncio.create_task(run_rollout(spec, runtime, Talker("terminal", {"command": COMMAND})))
        for _ in range(steps):
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(root.iterdir()) == []
        assert processes_of(root) == []


async def test_thousands_of_rollouts_in_one_process_end_when_they_are_cancelled(registry):
    async with Runtime(registry) as runtime:
        model = Talker("hang", {})
        tasks = [
            asyncio.create_task(run_rollout(spec_for(registry, "testing", f"r{i}"), runtime, model))
            for i in range(3000)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_ten_thousand_rollouts_give_ten_thousand_outcomes(registry):
    class OneCall(Talker):
        async def chat(self, request):
            if len(request.conversation) > 1:
                return ModelReply(content="done")
            return await super().chat(request)

    async with Runtime(registry) as runtime:
        model = OneCall("noop", {})
        spec = spec_for(registry, "testing")
        outcomes = await asyncio.gather(*[run_rollout(spec, runtime, model) for _ in range(10_000)])
    assert {(outcome.turns, outcome.stop_reason.value) for outcome in outcomes} == {(2, "final_answer")}
