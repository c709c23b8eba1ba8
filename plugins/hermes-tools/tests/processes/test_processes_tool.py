"""The tool `process`, and `terminal` with `background`: hermes-agent's answers, against real sandboxes."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime

import pytest
from background import model
from sandbox_support import LEVELS, wait_until_gone

from hermes_core.tooling import ArgumentsError, prepare_arguments
from hermes_sandbox.protocol import processes as processes_client
from hermes_tools import ProcessRegistry
from hermes_tools.catalog import TOOLS

PROCESS = next(spec for spec in TOOLS if spec.name == "process")
TERMINAL = next(spec for spec in TOOLS if spec.name == "terminal")


async def test_starting_returns_hermes_agents_fields():
    async with model() as one:
        answer = await one.terminal("read line", background=True)
        assert re.fullmatch("proc_[0-9a-f]{12}", answer.pop("session_id"))
        assert answer.pop("pid") > 0
        assert answer == {"output": "Background process started", "exit_code": 0, "error": None}


async def test_a_timeout_given_with_background_is_answered_with_a_note():
    async with model() as one:
        answer = await one.terminal("true", background=True, timeout=5)
        assert "process" in answer["timeout_note"]


async def test_a_short_check_interval_is_raised_with_a_note():
    async with model() as one:
        assert "30" in (await one.terminal("true", background=True, check_interval=5))["check_interval_note"]
        assert "check_interval_note" not in await one.terminal("true", background=True, check_interval=60)


@pytest.mark.parametrize("name", ["pty", "check_interval", "notify_on_complete", "watch_patterns"])
async def test_arguments_that_need_background_are_refused_without_it(name):
    async with model() as one:
        answer = await one.terminal("touch done", **{name: ["x"] if name == "watch_patterns" else 40})
        assert name in answer["error"]
        assert (await one.terminal("ls"))["output"] == ""


async def test_a_workdir_that_is_not_there_starts_nothing_and_is_not_listed():
    """hermes-agent's defect: a failed start was listed as running until the end."""
    async with model() as one:
        answer = await one.terminal("true", background=True, workdir="nowhere")
        assert answer["exit_code"] == -1
        assert "nowhere" in answer["error"]
        assert await one.process("list") == {"processes": []}


async def test_listing_describes_running_and_ended_processes():
    async with model() as one:
        first = await one.background("echo hello; read line")
        await one.says(first, "hello")
        second = await one.background("exit 3")
        await one.process("wait", second)
        rows = (await one.process("list"))["processes"]
        assert [row["session_id"] for row in rows] == [first, second]
        assert {key: rows[0][key] for key in ("command", "status", "output_preview")} == {
            "command": "echo hello; read line",
            "status": "running",
            "output_preview": "hello\n",
        }
        assert "exit_code" not in rows[0]
        assert (rows[1]["status"], rows[1]["exit_code"]) == ("exited", 3)
        for row in rows:
            assert row["cwd"] == one.context.sandbox.workspace
            assert datetime.fromisoformat(row["started_at"]).tzinfo is not None
            assert row["uptime_seconds"] >= 0
            assert row["pid"] > 0


async def test_a_long_command_is_listed_with_its_first_200_characters_and_polled_whole():
    async with model() as one:
        command = "true # " + "x" * 400
        session = await one.background(command)
        (row,) = (await one.process("list"))["processes"]
        assert row["command"] == command[:200]
        assert (await one.process("poll", session))["command"] == command


async def test_polling_tells_what_is_new_since_the_last_poll():
    """hermes-agent's defect: poll was not incremental although its description said so."""
    async with model() as one:
        session = await one.background("echo one; read line; echo two; read line")
        assert await one.says(session, "one\n") == "one\n"
        assert (await one.process("poll", session))["output_preview"] == ""
        await one.process("submit", session, data="")
        assert await one.says(session, "two\n") == "two\n"


async def test_every_consumer_has_its_own_place_in_the_output():
    async with model() as one:
        session = await one.background("echo one; read line")
        await one.says(session, "one")
        processes = one.context.processes
        other = await processes.poll(processes.find(session), consumer="screen")
        assert other["output_preview"] == "one\n"


async def test_polling_shows_the_last_1000_new_characters_and_says_what_is_left_out():
    async with model() as one:
        session = await one.background("seq 1 2000")
        await one.process("wait", session)
        answer = await one.process("poll", session)
        assert len(answer["output_preview"]) == 1000
        assert answer["output_preview"].endswith("1999\n2000\n")
        total = len("".join(f"{number}\n" for number in range(1, 2001)))
        assert str(total - 1000) in answer["output_note"]


async def test_characters_that_arrive_in_parts_are_never_broken():
    async with model() as one:
        session = await one.background(r"printf 'gr\303'; read line; printf '\274n'; read line")
        assert await one.says(session, "gr") == "gr"
        await one.process("submit", session, data="")
        assert await one.says(session, "n") == "ün"


async def test_the_log_shows_the_last_lines_or_any_page():
    """hermes-agent's defect: the log could not be read from its start."""
    async with model() as one:
        session = await one.background("seq 1 1000")
        await one.process("wait", session)
        last = await one.process("log", session)
        assert (last["total_lines"], last["showing"], last["status"]) == (1000, "200 lines", "exited")
        assert last["output"].splitlines() == [str(number) for number in range(801, 1001)]

        async def page(**arguments):
            return [int(line) for line in (await one.process("log", session, **arguments))["output"].split()]

        assert await page(offset=10, limit=3) == [11, 12, 13]
        assert await page(offset=-5, limit=2) == [996, 997]
        assert await page(from_start=True, limit=2) == [1, 2]
        assert await page(limit=2) == [999, 1000]


async def test_the_log_keeps_the_last_200000_characters_and_says_what_is_gone():
    async with model() as one:
        session = await one.background("head -c 2000000 /dev/zero | tr '\\0' x; echo; echo the end")
        await one.process("wait", session)
        answer = await one.process("log", session)
        assert answer["output"].endswith("the end")
        assert len(answer["output"]) == 200_000 - 1
        assert "not kept" in answer["output_note"]


async def test_waiting_answers_exit_code_and_the_last_2000_characters():
    async with model() as one:
        session = await one.background("seq 1 1000; exit 3")
        answer = await one.process("wait", session)
        assert (answer["status"], answer["exit_code"]) == ("exited", 3)
        assert len(answer["output"]) == 2000
        assert answer["output"].endswith("1000\n")


async def test_waiting_too_long_answers_timeout_and_the_last_1000_characters():
    async with model() as one:
        session = await one.background("seq 1 1000; read line")
        await one.says(session, "1000\n")
        answer = await one.process("wait", session, timeout=1)
        assert answer["status"] == "timeout"
        assert len(answer["output"]) == 1000
        assert "still running" in answer["timeout_note"]


async def test_a_wait_above_the_limit_is_clamped_with_a_note():
    """hermes-agent's defect: the clamp was dead code."""
    async with model(wait_limit=0.2) as one:
        session = await one.background("read line")
        answer = await one.process("wait", session, timeout=500)
        assert answer["status"] == "timeout"
        assert "500" in answer["timeout_note"]
        assert "0.2" in answer["timeout_note"]


async def test_a_wait_ends_at_the_moment_the_process_does():
    """hermes-agent's defect: a wait polled once a second and occupied a thread."""
    async with model() as one:
        session = await one.background("read line; exit 4")
        waiting = asyncio.ensure_future(one.process("wait", session))
        await one.process("submit", session, data="go")
        assert (await waiting)["exit_code"] == 4


async def test_an_embedding_application_can_interrupt_a_wait():
    async with model() as one:
        session = await one.background("echo so far; read line")
        await one.says(session, "so far")
        waiting = asyncio.ensure_future(one.process("wait", session))
        await one.process("poll", session)
        one.registry.interrupt("rollout-1")
        assert await waiting == {"status": "interrupted", "output": "so far\n"}
        assert (await one.process("poll", session))["status"] == "running"


@pytest.mark.parametrize("level", LEVELS)
async def test_killing_answers_what_was_observed(level, monkeypatch):
    """hermes-agent's defect: the exit code was set to -15 before anything had ended."""
    # On a busy machine it can take this long until the process has ended by itself.
    monkeypatch.setitem(ProcessRegistry.kill.__kwdefaults__, "grace", 60.0)
    async with model(level) as one:
        session = await one.background("trap 'exit 5' TERM; echo up; while :; do read -t 0.05 line; done")
        await one.says(session, "up")
        answer = await one.process("kill", session)
        assert answer == {"status": "killed", "session_id": session, "exit_code": 5}
        assert await one.process("kill", session) == {"status": "already_exited", "exit_code": 5}
        found = one.context.processes.find(session)
        assert (found.completion_reason, found.termination_source) == ("killed", "process.kill")


async def test_killing_what_ended_by_itself_says_so():
    async with model() as one:
        session = await one.background("exit 3")
        await one.process("wait", session)
        assert await one.process("kill", session) == {"status": "already_exited", "exit_code": 3}
        assert one.context.processes.find(session).completion_reason == "exited"


async def test_nothing_of_a_killed_process_is_left():
    async with model() as one:
        session = await one.background("sleep 600 & echo $!; wait")
        child = int(await one.says(session, "\n"))
        await one.process("kill", session)
        assert await wait_until_gone(child)


async def test_writing_submitting_and_closing():
    """hermes-agent's defect: there was no input at all inside a sandbox."""
    async with model() as one:
        session = await one.background("cat; echo over")
        assert await one.process("write", session, data="a bü") == {"status": "ok", "bytes_written": 5}
        assert await one.process("submit", session, data="c") == {"status": "ok", "bytes_written": 2}
        assert (await one.process("close", session))["status"] == "ok"
        assert (await one.process("wait", session))["output"] == "a büc\nover\n"
        for action in ("write", "submit", "close"):
            answer = await one.process(action, session, data="x")
            assert (answer["status"], answer["exit_code"]) == ("already_exited", 0)


async def test_closed_input_is_an_answer_not_a_failure():
    async with model() as one:
        session = await one.background("exec <&-; echo closed; exec sleep 600")
        await one.says(session, "closed")
        answer = await one.process("write", session, data="x")
        assert (answer["status"], "input" in answer["error"]) == ("error", True)


async def test_unknown_and_missing_ids_are_answered_as_by_hermes_agent():
    async with model() as one:
        unknown = await one.process("poll", "proc_0123456789ab")
        assert unknown == {"status": "not_found", "error": "No process with ID proc_0123456789ab"}
        for action in ("poll", "log", "wait", "kill", "write", "submit", "close"):
            assert (await one.process(action))["error"] == f"session_id is required for {action}"


@pytest.mark.parametrize("level", LEVELS)
async def test_a_python_prompt_is_driven_through_the_tool(level):
    async with model(level) as one:
        session = await one.background("python3 -q", pty=True)
        await one.says(session, ">>> ")
        await one.process("submit", session, data="6 * 7")
        await one.says(session, "42\n>>> ")
        await one.process("write", session, data="while True: pass\n\n")
        await one.says(session, "... ")
        await one.process("write", session, data="\x03")
        await one.says(session, "KeyboardInterrupt")
        await one.process("submit", session, data="exit(6)")
        assert (await one.process("wait", session))["exit_code"] == 6


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pty", [False, True])
async def test_a_question_of_a_script_is_answered_through_the_tool(level, pty):
    async with model(level) as one:
        session = await one.background("read -p 'Name? ' name; echo \"hello $name\"", pty=pty)
        if pty:
            await one.says(session, "Name? ")
        await one.process("submit", session, data="Ada")
        answer = await one.process("wait", session)
        assert answer["output"].endswith("hello Ada\n")


async def test_a_password_question_needs_a_terminal_and_is_not_echoed():
    async with model() as one:
        session = await one.background("read -s -p 'Password: ' word </dev/tty; echo; echo ${#word}", pty=True)
        await one.says(session, "Password: ")
        await one.process("submit", session, data="secret")
        answer = await one.process("wait", session)
        assert "secret" not in answer["output"]
        assert answer["output"].split()[-1] == "6"


async def test_a_terminal_without_ptyprocess_is_refused_with_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(processes_client.util, "find_spec", lambda _name: None)
    async with model() as one:
        answer = await one.terminal("true", background=True, pty=True)
        assert "pip install 'hermes-sandbox[pty]'" in answer["error"]
        assert await one.process("list") == {"processes": []}


async def test_escape_sequences_are_removed_also_when_they_come_in_parts():
    async with model() as one:
        session = await one.background(r"printf 'a\033[3'; read line; printf '1mb'; read line")
        assert await one.says(session, "a") == "a"
        await one.process("submit", session, data="")
        assert await one.says(session, "b") == "b"


async def test_the_caller_s_environment_is_not_handed_on(monkeypatch):
    """hermes-agent's defect: every API key of the caller was in the child's environment."""
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    async with model() as one:
        session = await one.background("env")
        assert "sk-secret" not in (await one.process("wait", session))["output"]


async def test_a_command_with_a_nul_is_refused_and_nothing_is_started():
    async with model() as one:
        answer = await one.terminal("echo \0", background=True)
        assert "NUL" in answer["error"]
        assert await one.process("list") == {"processes": []}


def test_the_schema_has_hermes_agents_actions_and_names():
    properties = PROCESS.parameters["properties"]
    assert properties["action"]["enum"] == ["list", "poll", "log", "wait", "kill", "write", "submit", "close"]
    assert set(properties) >= {"session_id", "data", "timeout", "offset", "limit"}
    assert set(TERMINAL.parameters["properties"]) >= {
        "background", "pty", "check_interval", "notify_on_complete", "watch_patterns"
    }  # fmt: skip
    with pytest.raises(ArgumentsError, match="action"):
        prepare_arguments(PROCESS, '{"action": "stop"}')
