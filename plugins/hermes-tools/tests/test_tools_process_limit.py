"""The answers of the terminal tools when the sandbox's process limit prevents a process from starting."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from background import Model
from sandbox_support import sandbox
from terminals import Driver

from hermes_core.contracts.errors import ProcessLimitError, SandboxRefusedError
from hermes_core.contracts.sandbox import ExecResult
from hermes_testing.watching import TooSoon, with_more_time
from hermes_tools import ProcessRegistry
from hermes_tools.terminal import TerminalTool

BOUND = "1024, by cgroup v1"
REFUSED = "bash: fork: retry: Resource temporarily unavailable\n"
CROWD = "sh -c 'i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i + 1)); done'"
"""Starts 60 processes that end by themselves, or fewer at the limit: there dash ends, and bash waits and retries."""


async def answer(result, **provenance):
    async def run(*_arguments, **_options):
        return result

    context = SimpleNamespace(sandbox=SimpleNamespace(exec=run, provenance=provenance), state={})
    return json.loads((await TerminalTool().call({"command": "x"}, context)).content)


@pytest.mark.parametrize("fields", [{"exit_code": 254}, {"exit_code": 124, "timed_out": True}])
async def test_a_command_that_could_start_no_process_is_told_the_limit(fields):
    found = await answer(ExecResult(output=REFUSED, **fields), limits={"pids": BOUND})
    assert f"this sandbox's limit on them is {BOUND}." in found["note"]
    assert found["output"] == REFUSED.strip()
    assert found["exit_code"] == fields["exit_code"]


async def test_a_command_that_prints_such_words_and_ends_well_is_told_nothing():
    assert "note" not in await answer(ExecResult(exit_code=0, output=REFUSED), limits={"pids": BOUND})


@pytest.mark.parametrize("provenance", [{}, {"limits": {}}, {"limits": {"pids": "none: no limit is set"}}])
async def test_a_sandbox_without_a_limit_is_told_nothing(provenance):
    assert "note" not in await answer(ExecResult(exit_code=254, output=REFUSED), **provenance)


async def test_another_failure_is_told_nothing():
    result = ExecResult(exit_code=1, output="cat: Resource temporarily unavailable\n")
    assert "note" not in await answer(result, limits={"pids": BOUND})


class Full:
    """A sandbox in which no further process can be started."""

    workspace = "/workspace"
    provenance = {"limits": {"pids": BOUND}}  # noqa: RUF012 - never changed

    def __init__(self, why):
        self.processes = self
        self._why = why

    async def start(self, *_arguments, **_options):
        raise ProcessLimitError(f"no more background processes can be started: {self._why}", hint="end one of them")


@pytest.mark.parametrize(
    ("why", "noted"),
    [("Resource temporarily unavailable", True), ("64 background processes are running already", False)],
)
async def test_a_background_process_that_could_not_be_started_is_told_the_limit_that_was_met(why, noted):
    found = await Model(Full(why), ProcessRegistry(), "r1").terminal("sleep 1", background=True)
    assert found["error"].startswith(f"no more background processes can be started: {why}")
    assert "Nothing was started." in found["error"]
    assert (BOUND in found["error"]) is noted


@pytest.fixture
async def small():
    try:
        async with sandbox(pids=24) as opened:
            bound = opened.provenance["limits"]["pids"]
            # A limit per user would also count all other processes of this user.
            if "cgroup" not in bound:
                pytest.skip(f"no control group bounds its processes: {bound}")
            yield opened
    except SandboxRefusedError as error:
        pytest.skip(f"no control group bounds its processes: {error.message}")


async def test_a_real_limit_is_met_and_named(small):
    async def attempt(seconds):
        limit = min(10, math.ceil(seconds))  # after some 15 s bash stops retrying
        found = await model.terminal("for i in {1..60}; do sleep 60 & done", timeout=limit)
        # bash's message for the kernel's error. The test is about the note that the tool adds.
        TooSoon.unless("Resource temporarily unavailable" in found["output"], "the limit on processes was not met")
        assert found["error"] == f"Command timed out after {limit} seconds"
        assert f"this sandbox's limit on them is {small.provenance['limits']['pids']}." in found["note"]
        assert found["note"].partition("limit on them is ")[2].startswith("24")

    model = Model(small, ProcessRegistry(), "r1")
    await with_more_time(attempt)


async def test_a_real_limit_is_named_in_the_interactive_terminal(small):
    found = await Driver(small).run(CROWD, timeout=60)
    assert "fork" in found["output"]
    assert "limit on them is 24" in found["note"]


async def test_the_end_of_a_background_process_names_the_real_limit_that_it_met(small):
    model = Model(small, ProcessRegistry(), "r1")
    session_id = await model.background(CROWD)
    found = await model.process("wait", session_id, timeout=60)
    assert found["exit_code"] not in {0, None}
    assert "limit on them is 24" in found["note"]
    await model.registry.release("r1")
