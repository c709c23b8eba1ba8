"""A rollout goes on in a sandbox that it lost: the calls are answered, and nothing is repeated."""

from __future__ import annotations

import json
import os
import signal

import pytest
from rollout_script import Script, call, calls, says
from sandbox_support import agent_of

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Task
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling.selection import select_tools

pytestmark = pytest.mark.component("bwrap")


@pytest.fixture
def run_calls(registry):
    """Run some calls of one turn, under which the agent is killed, after a command has written the answer."""

    async def run_calls(*lost):
        opened = []
        verifier = Ref(kind="verifier", name="file_is_ok", options={})
        task = Task(id="t", messages=({"role": "user", "content": "do it"},), verifier=verifier)
        tools = select_tools(registry, enabled_toolsets=["terminal", "file"])
        spec = RolloutSpec(rollout_id="r", group=GroupPlan(group_id="g", task=task, tools=tools))

        async def kill():
            os.kill(agent_of(opened[0].id), signal.SIGKILL)
            return calls(*lost)

        async with Runtime(registry, sandbox=SandboxSpec(isolation="bwrap")) as made:
            really = made.backend.open

            async def open_one(wanted):
                opened.append(await really(wanted))
                return opened[-1]

            made.backend.open = open_one
            return await run_rollout(spec, made, Script(_shell("echo ok > answer.txt"), kill, says("done")))

    return run_calls


def _shell(command):
    return calls(call("terminal", json.dumps({"command": command})))


def _answers(outcome):
    return [message["content"] for message in outcome.messages if message["role"] == "tool"]


async def test_a_call_that_is_lost_is_answered_with_what_is_not_known(run_calls):
    outcome = await run_calls(call("terminal", json.dumps({"command": "true"})))
    assert (outcome.reward, outcome.turns, outcome.counters["sandbox_recoveries"]) == (1.0, 3, 1)
    assert "Whether the call had an effect is not known. Files of the workspace" in _answers(outcome)[-1]
    assert [error.tool_name for error in outcome.tool_errors] == ["terminal"]


async def test_calls_of_a_turn_that_are_lost_together_are_all_answered(run_calls):
    """The second was told of the renewal, and ended the rollout."""
    search = json.dumps({"pattern": "ok"})
    outcome = await run_calls(*(call("search_files", search, call_id=f"c{number}") for number in range(3)))
    assert (outcome.reward, outcome.failure) == (1.0, None)
    assert outcome.counters["sandbox_recoveries"] >= 1
    assert len(_answers(outcome)) == 4
