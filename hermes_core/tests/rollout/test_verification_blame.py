"""Who is why a rollout cannot be judged: the rollout, the verifier, the infrastructure; and what each of them costs."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import csv
import dataclasses
import errno
import gzip
import json
import os
import signal
import struct
import zipfile
from xml.etree.ElementTree import ParseError

import pytest
import rollout_components
from rollout_script import Script, call, calls, says
from sandbox_support import agent_of

from hermes_core.contracts.errors import BackendError, SandboxLostError, UnavailableComponentError, VerifierError
from hermes_core.contracts.rollout import RewardStatus, StopReason
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Task, TaskFile
from hermes_core.contracts.verifier import Score
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.rollout.verification import artifacts
from hermes_core.specs import Ref
from hermes_core.tooling.selection import select_tools

ANSWER = (TaskFile(path="answer.txt", data=b"no"),)


@pytest.fixture
def run_steps(registry):
    """Run commands or calls and have a verifier judge; `opened` gets the sandboxes, of which there are `refuse`."""

    async def run_steps(verifier, *steps, suspect=False, refuse=None, error=None, options=None, opened=None, **fields):
        ref = Ref(kind="verifier", name=verifier, options=options or {})
        task = Task(id="t", messages=({"role": "user", "content": "do it"},), verifier=ref, **fields)
        tools = select_tools(registry, enabled_toolsets=["terminal", "testing"])
        turns = [step if callable(step) else calls(_command(step)) for step in steps]
        spec = RolloutSpec(rollout_id="r", group=GroupPlan(group_id="g", task=task, tools=tools), suspect=suspect)
        async with Runtime(registry, sandbox=SandboxSpec()) as made:
            _watch(made.backend, [] if opened is None else opened, refuse, error or BackendError("the engine is down"))
            return await run_rollout(spec, made, Script(*turns, says("done")))

    return run_steps


def _command(step):
    return call("terminal", json.dumps({"command": step})) if isinstance(step, str) else step


def _watch(backend, opened, refuse, error):
    """Note each sandbox that is opened, and let the engine be down from the given one on."""
    really = backend.open

    async def open_one(spec):
        if refuse is not None and len(opened) >= refuse:
            raise error
        opened.append(await really(spec))
        return opened[-1]

    backend.open = open_one


class ServiceError(Exception):
    """What a client of some service raises."""


def verdict_of(outcome):
    return outcome.reward, outcome.reward_status, outcome.suspect


LOWEST = (0.0, RewardStatus.OK, False)
NONE = (None, RewardStatus.ERROR, False)
SUSPECT = (None, RewardStatus.ERROR, True)
UNREADABLE = {
    "deleted": "rm answer.txt",
    "a directory": "rm answer.txt; mkdir answer.txt",
    "a loop of links": "rm answer.txt; ln -s answer.txt answer.txt",
    "below a file": "rm answer.txt; touch x; ln -s x/y answer.txt",
    "a pipe": "rm answer.txt; mkfifo answer.txt",
    "a device": "rm answer.txt; ln -s /dev/null answer.txt",
    "no end": "rm answer.txt; ln -s /dev/zero answer.txt",
    "memory": "rm answer.txt; ln -s /proc/self/mem answer.txt",
    "a name too long": 'rm answer.txt; ln -s "$(printf "%0300d" 1)" answer.txt',
}
UNWRITABLE = {
    "a file in the place of a directory": "touch expected",
    "a directory in the place of a file": "mkdir -p expected/answer.txt",
    "a loop of links": "ln -s expected expected",
    "a link to nowhere": "ln -s /proc/none expected",
    "a pipe": "mkdir expected; mkfifo expected/answer.txt",
    "a device": "mkdir expected; ln -s /dev/null expected/answer.txt",
}


@pytest.mark.parametrize("spoil", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_workspace_in_which_the_verifier_cannot_read_scores_the_lowest(run_steps, spoil):
    outcome = await run_steps("reads", spoil, files=ANSWER)
    assert verdict_of(outcome) == LOWEST
    assert outcome.stop_reason is StopReason.FINAL_ANSWER
    assert outcome.reward_detail.startswith("the rollout's own files keep it from being judged: verifier 'reads' ")
    assert outcome.provenance["verification"]["control"]["problem"] == ""


@pytest.mark.parametrize("spoil", UNWRITABLE.values(), ids=UNWRITABLE)
async def test_a_workspace_in_which_the_verifier_cannot_write_scores_the_lowest(run_steps, spoil):
    assert verdict_of(await run_steps("writes", spoil, files=ANSWER)) == LOWEST
    honest = await run_steps("writes", "echo ok > answer.txt", files=ANSWER)
    assert (honest.reward, "control" in honest.provenance["verification"]) == (1.0, False)


@pytest.mark.parametrize(
    ("verifier", "lowest"),
    [("reads", 0.0), ("reads_from_minus_one", -1.0), ("reads_unbounded", 0.0), ("reads_with_lowest", -3.0)],
)
async def test_the_lowest_score_is_what_the_verifier_declares(run_steps, verifier, lowest):
    assert (await run_steps(verifier, "rm answer.txt", files=ANSWER)).reward == lowest


async def test_a_verifier_says_itself_that_it_cannot_work_in_what_was_left(run_steps):
    assert verdict_of(await run_steps("gives_up", "touch mess")) == LOWEST
    opened = []
    outcome = await run_steps("gives_up", "true", files=(TaskFile(path="mess", data=b""),), opened=opened)
    assert verdict_of(outcome) == NONE
    assert outcome.reward_failure.type == "WorkspaceError"
    assert outcome.provenance["verification"]["control"]["problem"] == "there is a mess"
    assert len(opened) == 2


@pytest.fixture
def hang(monkeypatch):
    """Make a verifier wait forever; its time ends at once, however fast this machine is."""
    timers = []
    timeout = asyncio.timeout

    def noting(delay):
        timer = timeout(delay)
        timers.extend([timer] if delay is None else [])  # the verifier's begins when it does
        return timer

    async def wait():
        now = asyncio.get_running_loop().time()
        timers[-1].reschedule(now)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "timeout", noting)
    return wait


async def test_a_workspace_at_which_the_verifier_hangs_scores_the_lowest(run_steps, monkeypatch, hang):
    async def score(self, result, context):
        return await hang() if await context.exists("trap") else Score(value=1.0)

    monkeypatch.setattr("rollout_components.Reads.score", score)
    outcome = await run_steps("reads", "touch trap")
    assert verdict_of(outcome) == LOWEST
    assert "took more than 600 s" in outcome.reward_detail
    assert verdict_of(await run_steps("reads", "true")) == (1.0, RewardStatus.OK, False)


async def test_a_verifier_that_hangs_in_every_sandbox_or_only_once_costs_nothing(run_steps, monkeypatch, hang):
    judged = []

    async def hang_once(self, result, context):
        judged.append("")
        return await hang() if len(judged) == 1 else Score(value=0.5)

    async def always_hang(self, result, context):
        await hang()

    monkeypatch.setattr("rollout_components.Reads.score", hang_once)
    assert verdict_of(await run_steps("reads", "touch trap")) == (0.5, RewardStatus.OK, False)
    monkeypatch.setattr("rollout_components.Reads.score", always_hang)
    outcome = await run_steps("reads", "touch trap")
    assert verdict_of(outcome) == NONE
    assert outcome.reward_failure.type == "VerifierTimeoutError"


ABOUT_DATA = [
    *(ValueError("no number"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), json.JSONDecodeError("no", "", 0)),
    *(KeyError("answer"), IndexError("no field"), ZeroDivisionError("no tests"), OverflowError("too large")),
    *(SyntaxError("no Python"), ParseError("no XML"), RecursionError("too deep"), EOFError("cut off")),
    *(TypeError("a list for a mapping"), AttributeError("None for a match"), gzip.BadGzipFile("no archive")),
    *(zipfile.BadZipFile("no archive"), csv.Error("no table"), struct.error("too short"), configparser.Error("no")),
]
ABOUT_CODE = [
    *(NameError("a bug"), AssertionError("a bug"), RuntimeError("a bug"), ConnectionError("unreachable")),
    *(ImportError("no judge"), NotImplementedError("a bug"), ServiceError("unreachable")),
]


def _raises(error, where="spoiled"):
    """Return a verifier's method that raises where a file is there, and scores 0.5 elsewhere."""

    async def score(self, result, context):
        if await context.exists(where):
            raise error
        return Score(value=0.5)

    return score


@pytest.mark.parametrize("error", ABOUT_DATA, ids=lambda error: type(error).__name__)
async def test_work_that_a_verifier_cannot_read_is_repeated_and_then_scores_the_lowest(run_steps, monkeypatch, error):
    monkeypatch.setattr("rollout_components.Reads.score", _raises(error))
    first = await run_steps("reads", "touch spoiled")
    assert verdict_of(first) == SUSPECT
    assert first.reward_failure.type == "NoVerdictError"
    second = await run_steps("reads", "touch spoiled", suspect=True)
    assert verdict_of(second) == LOWEST
    assert f"raised {type(error).__name__}" in second.reward_detail
    assert verdict_of(await run_steps("reads", "true", suspect=True)) == (0.5, RewardStatus.OK, False)


@pytest.mark.parametrize("error", ABOUT_CODE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("suspect", [False, True])
async def test_an_error_about_code_is_the_verifiers_own_whatever_the_workspace_holds(
    run_steps, monkeypatch, error, suspect
):
    opened = []
    monkeypatch.setattr("rollout_components.Reads.score", _raises(error))
    assert verdict_of(await run_steps("reads", "touch spoiled", suspect=suspect, opened=opened)) == NONE
    assert len(opened) == 1


async def test_a_verifier_that_says_itself_that_it_failed_is_believed(run_steps, monkeypatch):
    error = VerifierError("the judging model answered no JSON")
    error.__cause__ = ValueError("no JSON")
    monkeypatch.setattr("rollout_components.Reads.score", _raises(error))
    assert verdict_of(await run_steps("reads", "touch spoiled", suspect=True)) == NONE


async def test_a_mistake_that_an_untouched_sandbox_shows_too_or_that_passes_finds_nobody_guilty(run_steps, monkeypatch):
    errors = [KeyError("answer")]

    async def stumbles(self, result, context):
        if errors:
            raise errors.pop()
        return Score(value=0.5)

    monkeypatch.setattr("rollout_components.Reads.score", _raises(KeyError("answer"), where="."))
    assert verdict_of(await run_steps("reads", "touch spoiled", suspect=True)) == NONE
    monkeypatch.setattr("rollout_components.Reads.score", stumbles)
    assert verdict_of(await run_steps("reads", "touch spoiled", suspect=True)) == (0.5, RewardStatus.OK, False)


FAILS = [
    OSError(errno.ENOSPC, "full"),
    FileNotFoundError(errno.ENOENT, "gone", "/run/judge.sock"),
    OSError(errno.EPERM, "no"),
]


@pytest.mark.parametrize("error", FAILS, ids=lambda error: type(error).__name__)
async def test_what_fails_once_and_not_again_costs_nothing(run_steps, monkeypatch, error):
    errors = [error]
    monkeypatch.setattr("rollout_components.Reads.fails", lambda _self: errors and errors.pop())
    outcome = await run_steps("reads", "echo ok > answer.txt", files=ANSWER)
    assert (outcome.reward, outcome.reward_status) == (1.0, RewardStatus.OK)


@pytest.mark.parametrize("error", [ConnectionRefusedError(errno.ECONNREFUSED, "no"), RuntimeError("a bug"), None])
async def test_a_control_that_gives_no_score_finds_nobody_guilty(run_steps, monkeypatch, error):
    answers = [FileNotFoundError(errno.ENOENT, "gone"), error or OSError(errno.EIO, "broken")]
    monkeypatch.setattr("rollout_components.Reads.fails", lambda _self: answers and answers.pop(0))
    assert verdict_of(await run_steps("reads", "true", files=ANSWER)) == NONE


async def test_a_control_that_no_rollout_could_have_either_stops_the_run(run_steps):
    with pytest.raises(UnavailableComponentError):
        await run_steps("reads", "rm answer.txt", files=ANSWER, refuse=1, error=UnavailableComponentError("no engine"))


async def test_what_an_untouched_sandbox_lacks_too_is_the_verifiers_own_mistake(run_steps):
    outcome = await run_steps("reads", "true")
    assert verdict_of(outcome) == NONE
    assert "answer.txt" in outcome.provenance["verification"]["control"]["problem"]


async def test_without_an_untouched_sandbox_nobody_is_found_guilty(run_steps):
    assert verdict_of(await run_steps("reads", "rm answer.txt", files=ANSWER, refuse=1)) == NONE


LOST = call("lost")


async def test_a_sandbox_that_is_lost_makes_the_rollout_suspect_and_lost_again_scores_the_lowest(run_steps):
    first = await run_steps("file_is_ok", "true", LOST)
    assert verdict_of(first) == (None, RewardStatus.SKIPPED, True)
    assert first.stop_reason is StopReason.TOOL_BACKEND_ERROR
    second = await run_steps("file_is_ok", "true", LOST, suspect=True)
    assert verdict_of(second) == LOWEST
    assert (second.stop_reason, second.failure.type) == (StopReason.SANDBOX_DESTROYED, "SandboxLostError")


async def test_a_real_agent_that_the_model_kills_is_lost_in_both_attempts(run_steps):
    kill = "kill -9 $PPID"
    assert (await run_steps("file_is_ok", kill)).suspect
    assert verdict_of(await run_steps("file_is_ok", kill, suspect=True)) == LOWEST


async def test_after_a_loss_a_sandbox_that_is_not_lost_is_enough_though_nothing_in_it_can_be_judged(run_steps):
    assert verdict_of(await run_steps("reads", "true", LOST, suspect=True)) == LOWEST


async def test_a_repeat_counts_for_nothing_while_no_sandbox_can_be_had(run_steps):
    outcome = await run_steps("file_is_ok", "true", LOST, suspect=True, refuse=1)
    assert verdict_of(outcome) == (None, RewardStatus.SKIPPED, False)
    assert outcome.stop_reason is StopReason.TOOL_BACKEND_ERROR


async def test_a_repeat_that_ends_well_is_judged_as_ever(run_steps):
    outcome = await run_steps("file_is_ok", "echo ok > answer.txt", suspect=True)
    assert (outcome.reward, outcome.stop_reason) == (1.0, StopReason.FINAL_ANSWER)


async def test_who_has_called_no_tool_has_destroyed_nothing(run_steps):
    for suspect in (False, True):
        assert verdict_of(await run_steps("loses_sandbox", suspect=suspect, files=ANSWER)) == NONE
        outcome = await run_steps("file_is_ok", files=ANSWER, refuse=0, suspect=suspect)
        assert verdict_of(outcome) == (None, RewardStatus.SKIPPED, False)


async def test_a_verifier_under_which_every_sandbox_is_lost_is_to_blame_itself(run_steps):
    assert verdict_of(await run_steps("loses_sandbox", "true")) == SUSPECT
    assert verdict_of(await run_steps("loses_sandbox", "true", suspect=True)) == NONE


async def test_a_sandbox_that_ended_by_its_own_terms_makes_nobody_suspect(run_steps):
    async def waits():
        with contextlib.suppress(SandboxLostError):
            while True:  # until the sandbox says that it has ended
                await opened[-1].stat(".")
                await asyncio.sleep(1.5)
        return calls(call("terminal", json.dumps({"command": "true"})))

    for suspect in (False, True):
        opened = []
        outcome = await run_steps("reads", "true", waits, opened=opened, suspect=suspect, sandbox={"lifetime": 1})
        assert verdict_of(outcome) == (None, RewardStatus.SKIPPED, False)
        assert outcome.provenance["sandbox"]["expired"] == "it was idle for 1 s"


async def test_a_task_without_a_verifier_is_not_judged_after_a_loss(run_steps, registry):
    task = Task(id="t", messages=({"role": "user", "content": "do it"},))
    tools = select_tools(registry, enabled_toolsets=["testing"])
    spec = RolloutSpec(rollout_id="r", group=GroupPlan(group_id="g", task=task, tools=tools))
    async with Runtime(registry) as runtime:
        for suspect in (False, True):
            outcome = await run_rollout(dataclasses.replace(spec, suspect=suspect), runtime, Script(calls(LOST)))
            assert verdict_of(outcome) == (None, RewardStatus.SKIPPED, False)


async def test_what_the_verifier_reads_of_this_machine_gives_no_reward_where_it_changes(run_steps, tmp_path):
    read = tmp_path / "read"
    read.write_text("as it was")
    assert verdict_of(await run_steps("depends", f"echo x >> {read}", options={"reads": [str(read)]})) == NONE


async def test_an_agent_that_is_killed_from_outside_costs_one_attempt_and_no_reward(run_steps):
    opened = []

    async def is_killed():
        os.kill(agent_of(opened[-1].id), signal.SIGKILL)
        return calls(call("terminal", json.dumps({"command": "true"})))

    first = await run_steps("reads", "echo ok > answer.txt", is_killed, opened=opened, files=ANSWER)
    assert verdict_of(first) == (None, RewardStatus.SKIPPED, True)
    assert (await run_steps("reads", "echo ok > answer.txt", suspect=True, files=ANSWER)).reward == 1.0


async def test_a_machine_that_cannot_hold_what_is_to_be_judged_finds_nobody_guilty(run_steps, monkeypatch):
    async def fill_up(self, path, target, *, max_bytes=None):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr("hermes_sandbox.backend.agent_sandbox.AgentSandbox.download", fill_up)
    for suspect in (False, True):
        outcome = await run_steps("fresh", "echo ok > answer.txt", files=ANSWER, suspect=suspect)
        assert (outcome.reward, outcome.reward_failure.type) == (None, "JudgeLostError")


async def test_a_lost_sandbox_whose_cause_is_an_error_of_the_system_finds_nobody_guilty(run_steps, monkeypatch):
    async def score(self, result, context):
        raise SandboxLostError("the agent is gone") from OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rollout_components.Reads.score", score)
    assert verdict_of(await run_steps("reads")) == NONE


async def test_a_copy_for_the_judge_has_twice_the_time_before_it_finds_anybody_guilty(run_steps, monkeypatch):
    limits = []
    really = artifacts.await_answer

    async def await_answer(asked, limit):
        limits.append(limit)
        return await really(asked, limit)

    monkeypatch.setattr("hermes_core.rollout.verification.verifier_sandboxes.await_answer", await_answer)
    monkeypatch.setattr("hermes_core.rollout.verification.artifacts._MOST_BYTES", 10_000)
    assert verdict_of(await run_steps("fresh", "head -c 30000 /dev/urandom > answer.txt", files=ANSWER)) == LOWEST
    assert limits == [600, 600, 1200]


async def test_a_failure_names_the_line_of_the_verifier_and_not_of_what_it_called(run_steps, tmp_path):
    outcome = await run_steps("parses", "echo '{' > answer.txt", files=ANSWER)
    assert f"{rollout_components.__file__}, line " in outcome.reward_failure.message


async def test_more_than_this_machine_takes_over_for_a_judge_scores_the_lowest(run_steps, monkeypatch):
    monkeypatch.setattr("hermes_core.rollout.verification.artifacts._MOST_BYTES", 200_000)
    outcome = await run_steps("fresh", "head -c 300000 /dev/urandom > answer.txt", files=ANSWER)
    assert verdict_of(outcome) == LOWEST
    assert "More than 200000 bytes" in outcome.reward_detail
    assert (await run_steps("fresh", "echo ok > answer.txt", files=ANSWER)).reward == 1.0


@pytest.mark.component("bwrap")
async def test_a_workspace_that_the_model_has_filled_scores_the_lowest(run_steps):
    if os.geteuid() != 0:
        pytest.skip("limiting the disk needs root")
    small = {"isolation": "bwrap", "disk_mb": 8}
    outcome = await run_steps("writes", "head -c 20000000 /dev/zero > big", sandbox=small, files=ANSWER)
    assert verdict_of(outcome) == LOWEST
    assert "No space left on device" in outcome.reward_detail


async def test_a_disk_of_the_machine_that_is_full_costs_no_reward(run_steps, monkeypatch):
    from hermes_sandbox.backends import AgentSandbox

    async def fail(_sandbox, path, _data, *, mode=None):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    async def fills_up():
        monkeypatch.setattr(AgentSandbox, "write_file", fail)
        return calls(call("terminal", json.dumps({"command": "true"})))

    outcome = await run_steps("writes", "echo ok > answer.txt", fills_up, files=ANSWER)
    assert verdict_of(outcome) == NONE
    assert "cannot be placed" in outcome.provenance["verification"]["control"]["problem"]
