"""Background processes in a whole rollout: started by the model, observed by a plugin, ended with the rollout."""

from __future__ import annotations

import json

import process_observer
import pytest
from rollout_script import Script, call, calls, says, spec_for
from sandbox_support import wait_until_gone

from hermes_core.contracts.rollout import StopReason
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.rollout import RolloutContext, Runtime, run_rollout


@pytest.fixture
def seen_updates():
    process_observer.SEEN.clear()
    return process_observer.SEEN


@pytest.fixture
def observed_registry(seen_updates):
    settings = PluginSettings(
        allow=("hermes-sandbox", "hermes-tools"),
        extra=("rollout_components", "process_observer"),
        strict=True,
    )
    return load_plugins(settings, environ={})


class Driver(Script):
    """A script whose later calls use the session id that its first call returned."""

    def then(self, name, **arguments):
        async def reply():
            started = next(json.loads(one["content"]) for one in self.requests if one["role"] == "tool")
            given = json.dumps({**arguments, "session_id": started["session_id"]})
            return calls(call(name, given))

        self._replies.append(reply)
        return self

    def finally_says(self, text):
        self._replies.append(says(text))


def starting(command, **arguments):
    return calls(call("terminal", json.dumps({"command": command, "background": True, **arguments})))


async def test_a_model_starts_feeds_and_waits_for_a_process(observed_registry, seen_updates, tmp_path):
    checkpoint = tmp_path / "processes.json"
    driver = Driver(starting("read name; echo hello $name; exit 3", check_interval=30))
    driver.then("process", action="submit", data="Ada").then("process", action="wait").finally_says("done")
    async with Runtime(observed_registry, process_checkpoint=checkpoint) as runtime:
        outcome = await run_rollout(spec_for(observed_registry, tools=("terminal",)), runtime, driver)
    assert outcome.stop_reason is StopReason.FINAL_ANSWER
    waited = json.loads([one["content"] for one in outcome.messages if one["role"] == "tool"][-1])
    assert waited == {"status": "exited", "exit_code": 3, "output": "hello Ada\n"}
    assert [(event.moment, event.rollout_id) for event in seen_updates] == [("started", "r1"), ("ended", "r1")]
    assert (seen_updates[-1].exit_code, seen_updates[-1].output) == (3, "hello Ada\n")
    assert json.loads(checkpoint.read_text()) == []


async def test_what_a_rollout_leaves_running_ends_with_it_and_is_told(observed_registry, seen_updates):
    async with Runtime(observed_registry) as runtime:
        model = Script(starting("exec sleep 600"), says("done"))
        outcome = await run_rollout(spec_for(observed_registry, tools=("terminal",)), runtime, model)
        started = json.loads(next(one["content"] for one in outcome.messages if one["role"] == "tool"))
        assert await wait_until_gone(started["pid"])
        assert not runtime.service("processes").has_active_processes("r1")
    assert [event.moment for event in seen_updates] == ["started", "ended"]
    assert seen_updates[-1].reason in {"killed", "lost"}


async def test_a_context_s_processes_carry_its_session_key(observed_registry):
    async with Runtime(observed_registry) as runtime, runtime.open_sandbox(runtime.sandbox_spec) as box:
        context = RolloutContext(runtime, rollout_id="r1", sandbox=box)
        context.session_key = "chat-7"
        answer = await context.call_tool("terminal", {"command": "read line", "background": True})
        session_id = json.loads(answer)["session_id"]
        assert runtime.service("processes").has_active_for_session("chat-7")
        assert (await context.processes.kill(context.processes.find(session_id)))["status"] == "killed"
        assert not runtime.service("processes").has_active_for_session("chat-7")
        await context.cleanup()
