"""The rules of a session, each after an observed failure, for both kinds of session if it applies to both."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

import pytest
from sandbox_support import processes_of, resident, wait_until_gone
from sandbox_support import sandbox as open_one
from time_limits import may_have_been_idle, runs_out_of_time

from hermes_core.contracts.errors import SandboxLostError
from hermes_testing.watching import TooSoon, begin, eventually, exists, with_more_time


@pytest.fixture(params=["robust", "live"])
async def sandbox(request):
    async with open_one(session=request.param) as opened:
        yield opened


@pytest.fixture
async def live():
    async with open_one(session="live") as opened:
        yield opened


async def written_pid(sandbox):
    """Return the process id in the file `pid`; TooSoon if nothing has written it."""
    text = await sandbox.read_file("pid") if await exists(sandbox, "pid") else b""
    TooSoon.unless(text.endswith(b"\n"), "no pid had been written")
    return int(text)


async def out(sandbox, command, **options):
    return (await sandbox.exec(command, **options)).stdout.decode()


@pytest.mark.parametrize("noise", ["printf '1 0\\n'", "printf '\\0\\377\\n7 7\\n'", "printf '1 7\\n' >&250"])
async def test_nothing_a_command_prints_passes_for_its_status(sandbox, noise):
    """Rule 1; hermes-agent's defect: a marker in the output could be forged or swallowed."""
    result = await sandbox.exec(f"{noise}; exit 5")
    assert result.exit_code == 5
    assert await out(sandbox, "echo fine") == "fine\n"


async def test_a_command_is_over_when_its_shell_says_so_and_not_when_its_pipe_ends(sandbox):
    """Rule 2; hermes-agent's defect: a background child held the call until the timeout."""
    result = await sandbox.exec("sleep 300 & echo started", timeout=120)
    assert (result.stdout, result.timed_out) == (b"started\n", False)


async def test_later_output_of_a_background_child_is_not_the_next_command_s(sandbox):
    """Rule 2."""
    await sandbox.exec("(until [[ -e go ]]; do sleep 0.01; done; echo late; touch said) &")
    await sandbox.exec("touch go")

    async def has_said():
        listing = await out(sandbox, "ls")
        assert "late" not in listing
        return "said" in listing

    assert await eventually(has_said)


async def test_output_is_kept_head_and_tail_in_constant_memory(sandbox):
    """Rule 3; hermes-agent's defect: output grew without bound."""
    (before,) = [resident(pid) for pid in processes_of(sandbox.id)[:1]]
    result = await sandbox.exec("echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo last", timeout=120)
    assert result.stdout.startswith(b"first\n")
    assert result.stdout.endswith(b"last\n")
    assert result.truncated
    assert resident(processes_of(sandbox.id)[0]) - before < 10 << 20


async def test_many_interrupted_commands_cost_the_next_one_nothing(live):
    """Rule 4: two interrupts gave two prompts, and the second one ate a byte of the next command."""
    commands = ("sleep 300", "while :; do :; done", "sleep 300 | cat", "wait", "read -r x </dev/zero")
    await live.exec("export KEPT=1")
    for command in commands:
        # A cancelled command is stopped like one that timed out, but its progress then does not depend on time.
        call = await begin(live, f"touch begun; {command}; sleep 300")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await out(live, "echo $KEPT next") == "1 next\n"


async def test_a_timeout_ends_even_those_whose_leader_has_gone(sandbox):
    """Rule 5: a grandchild that ignored SIGTERM survived."""
    script = "(bash -c 'trap \"\" INT TERM; echo $BASHPID >pid; while :; do sleep 0.1; done' &) ; sleep 300"

    async def attempt(limit):
        await sandbox.exec("rm -f pid")
        result = await sandbox.exec(script, timeout=limit)
        return await written_pid(sandbox), result

    pid, result = await with_more_time(attempt)
    assert (result.exit_code, result.timed_out) == (124, True)
    assert await wait_until_gone(pid)


async def test_a_timeout_ends_what_left_its_session_and_its_environment(sandbox):
    """Rule 5."""
    script = "(env -i setsid bash -c 'trap \"\" INT TERM HUP; echo $$ >pid; exec sleep 300' >/dev/null 2>&1 &)"

    async def attempt(limit):
        await sandbox.exec("rm -f pid")
        await sandbox.exec(f"{script}; sleep 300", timeout=limit)
        return await written_pid(sandbox)

    assert await wait_until_gone(await with_more_time(attempt))


async def test_a_job_of_an_earlier_command_outlives_a_later_timeout(sandbox):
    """Rule 5, the other way round."""
    await sandbox.exec("sleep 300 & echo $! >pid")
    assert (await runs_out_of_time(sandbox, "sleep 300")).timed_out
    assert await out(sandbox, "kill -0 $(cat pid) && echo alive") == "alive\n"


async def test_a_command_of_a_megabyte_is_no_argument(sandbox):
    """Rule 6: 128 KB of text are too long for an argument."""
    assert await out(sandbox, f": '{'x' * (1 << 20)}'; echo done") == "done\n"


async def test_a_command_is_in_no_argument_list(sandbox):
    """Rule 6."""
    assert "needle" not in await out(sandbox, ": need''le; tr '\\0' ' ' </proc/$$/cmdline")


async def test_what_asks_a_person_fails_at_once(sandbox):
    """Rule 7; hermes-agent's defect: prompts hung until the timeout."""
    result = await sandbox.exec("read -r line; echo $?; tty; echo $TERM $PAGER $GIT_TERMINAL_PROMPT", timeout=120)
    assert result.stdout == b"1\nnot a tty\ndumb cat 0\n"


@pytest.mark.parametrize(
    ("command", "code"), [("(kill -9 $BASHPID)", 137), ("(kill -TERM $BASHPID)", 143), ("false", 1)]
)
async def test_an_exit_code_is_bash_s(sandbox, command, code):
    """Rule 8."""
    assert (await sandbox.exec(command)).exit_code == code


async def test_a_timeout_keeps_the_output_so_far_and_the_session(sandbox):
    """Rule 8; hermes-agent's defect: a timeout cost the session and what had been printed."""
    await sandbox.exec("KEPT=1; cd /usr")
    result = await runs_out_of_time(sandbox, "echo before; touch $BEGUN; sleep 300")
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"before\n")
    assert await out(sandbox, "echo $KEPT $PWD") == "1 /usr\n"


async def test_nothing_is_left_when_the_caller_goes(sandbox):
    """Rule 9."""
    await sandbox.exec("sleep 300 & (setsid sleep 300 &)")
    await sandbox.aclose()
    assert processes_of(sandbox.id) == []


async def test_the_session_has_no_terminal(sandbox):
    """Rule 10: a terminal belongs to a process of its own."""
    assert (await sandbox.exec(": </dev/tty")).exit_code != 0


async def test_output_is_bytes_and_decoded_with_replacement(sandbox):
    """Rule 11; hermes-agent's defect: one byte that was not UTF-8 crashed the call."""
    result = await sandbox.exec("printf 'a\\377\\0b'")
    assert (result.stdout, result.output) == (b"a\xff\0b", "a\ufffd\0b")


async def test_a_live_session_keeps_jobs_descriptors_and_variables(live):
    await live.exec("exec 5>file; sleep 300 & x=1; f() { echo f$x; }; cd /usr; set -o pipefail")
    assert "Running" in await out(live, "jobs")
    await live.exec("echo through >&5; kill %1; wait %1")
    assert await out(live, "f; pwd; set -o | grep -c 'pipefail.*on'") == "f1\n/usr\n1\n"
    assert await live.read_file("file") == b"through\n"


@pytest.mark.parametrize(
    ("command", "code"), [("exit 3", 3), ("exec sh -c 'exit 4'", 4), ("set -e; false", 1), ("kill -9 $$", 137)]
)
async def test_the_end_of_a_live_shell_is_the_result_and_the_next_call_says_so(live, command, code):
    await live.exec("X=1")
    assert (await live.exec(command)).exit_code == code
    result = await live.exec("echo ${X-gone}")
    assert result.stdout == b"gone\n"
    assert b"the shell of this session has ended" in result.stderr
    assert (await live.exec("true")).stderr == b""


@pytest.mark.parametrize(
    "command", [": ${missing:?needed}", "set -u; echo $missing", "if", "cat <<E\nopen", "return 3"]
)
async def test_a_live_session_survives_what_is_fatal_to_a_script(live, command):
    await live.exec("X=1")
    await live.exec(command)
    assert await out(live, "set +u; echo $X") == "1\n"


async def test_a_live_call_s_own_variables_and_directory_are_forgotten(live):
    await live.exec("export X='a  session'; cd /usr; cd /usr/bin")
    given = await out(live, "echo $X $NEW $PWD; X=changed; cd /", cwd="/tmp", env={"X": "a 'b'", "NEW": "$n"})
    assert given == "a 'b' $n /tmp\n"
    assert (
        await out(live, 'echo "$X" ${NEW-none} $PWD $OLDPWD; printenv X')
        == "a  session none /usr/bin /usr\na  session\n"
    )


async def test_a_live_shell_that_traps_interrupts_ends_and_the_next_call_says_so(live):
    result = await runs_out_of_time(live, "trap '' INT; touch $BEGUN; while :; do :; done")
    assert (result.exit_code, result.timed_out) == (124, True)
    assert b"the shell of this session has ended" in (await live.exec("true")).stderr


async def test_cancelling_a_live_call_ends_what_it_started(live):
    call = await begin(live, "sleep 300")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await out(live, "pgrep -P $$ sleep; echo fine") == "fine\n"


async def test_a_renewed_live_session_is_new_and_keeps_its_files(live):
    await live.exec("X=1; touch kept; sleep 300 &")
    await live.renew()
    assert await out(live, "echo ${X-gone} $(ls)") == "gone kept\n"


async def test_a_live_command_takes_input_of_a_megabyte(live):
    data = os.urandom(1 << 20)
    assert await out(live, "wc -c; wc -c", stdin=data) == f"{len(data)}\n0\n"


async def test_a_live_session_that_is_idle_too_long_ends():
    async def attempt(lifetime):
        async with AsyncExitStack() as stack:
            with may_have_been_idle(lifetime):
                idle = await stack.enter_async_context(open_one(session="live", lifetime=lifetime))
                await idle.exec("true")
            assert await eventually(lambda: idle.slot.lost is not None, seconds=lifetime + 30)
            with pytest.raises(SandboxLostError, match="it was idle for"):
                await idle.exec("true")

    await with_more_time(attempt)
