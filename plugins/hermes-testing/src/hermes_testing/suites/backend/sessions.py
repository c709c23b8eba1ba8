"""Tests of sessions: state is kept between commands, in consecutive shells or in one live shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hermes_core.contracts.sandbox import Sandbox, TerminalBackend
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.backend.commands import ALTERNATING, alternating_lines
from hermes_testing.suites.base import needs
from hermes_testing.watching import begin, runs_inside, sleep_token

_SHELL_KILLERS = {
    "exit": ("exit 7", 7),
    "exec": ("exec sh -c 'exit 5'", 5),
    "set_e": ("set -e; false; echo unreached", 1),
    "kill_9": ("kill -9 $$", 137),
    "exit_in_function": ("leave() { exit 4; }; leave", 4),
}


class Sessions(BackendBase):
    """Consecutive commands."""

    @needs("state")
    async def test_the_working_directory_survives(self, sandbox: Sandbox) -> None:
        """As in a terminal, even with a space in its name."""
        await sandbox.exec("mkdir 'a b'; cd 'a b'")
        assert (await sandbox.exec("pwd")).output.endswith("/a b\n")

    @needs("state")
    async def test_exports_survive(self, sandbox: Sandbox) -> None:
        """With quotes and newlines; child processes see them."""
        await sandbox.exec("export KEPT=$'it\\'s \"two\"\\nlines'")
        assert (await sandbox.exec("sh -c 'printf %s \"$KEPT\"'")).output == 'it\'s "two"\nlines'

    @needs("state")
    async def test_functions_survive(self, sandbox: Sandbox) -> None:
        """Including those from a sourced file."""
        await sandbox.write_file("library.sh", 'greet() { echo "hello $1"; }\n')
        await sandbox.exec(". ./library.sh")
        assert (await sandbox.exec("greet you")).output == "hello you\n"

    @needs("state")
    async def test_aliases_survive(self, sandbox: Sandbox) -> None:
        """With quotes, until they are removed."""
        await sandbox.exec("alias greet='echo \"hello there\"' gone=true")
        assert (await sandbox.exec("greet you")).output == "hello there you\n"
        await sandbox.exec("unalias gone")
        assert (await sandbox.exec("greet us; gone 2>/dev/null || echo none")).output == "hello there us\nnone\n"

    @needs("state")
    async def test_what_is_unset_stays_unset(self, sandbox: Sandbox) -> None:
        """The state is the latest one, not the sum of all."""
        await sandbox.exec("export GONE=1; f() { :; }")
        await sandbox.exec("unset GONE; unset -f f")
        assert (await sandbox.exec("echo ${GONE-unset}; type -t f || echo none")).output == "unset\nnone\n"

    @needs("state")
    @pytest.mark.parametrize(("command", "code"), _SHELL_KILLERS.values(), ids=_SHELL_KILLERS)
    async def test_state_survives_the_end_of_the_shell(self, sandbox: Sandbox, command: str, code: int) -> None:
        """A command that ends its shell returns its exit code and loses no earlier state."""
        await sandbox.exec("mkdir deep; cd deep; export KEPT=yes; f() { echo f; }")
        assert (await sandbox.exec(command)).exit_code == code
        assert (await sandbox.exec("echo $KEPT $(f) ${PWD##*/}")).output == "yes f deep\n"

    @needs("state")
    async def test_state_survives_a_timeout(self, sandbox: Sandbox) -> None:
        """Only the command is killed, not the session."""
        await sandbox.exec("mkdir deep; cd deep; export KEPT=yes")
        assert (await sandbox.exec(f"sleep {sleep_token()}", timeout=0.4)).timed_out
        assert (await sandbox.exec("echo $KEPT ${PWD##*/}")).output == "yes deep\n"

    @needs("state")
    async def test_a_removed_working_directory_is_no_dead_end(self, sandbox: Sandbox) -> None:
        """The next command still runs."""
        await sandbox.exec("mkdir gone; cd gone; rmdir ../gone")
        assert (await sandbox.exec("echo alive")).stdout == b"alive\n"

    async def test_an_alias_or_option_does_not_leak_into_the_machinery(self, sandbox: Sandbox) -> None:
        """Redefining commands that a wrapper would use, or tracing, breaks nothing."""
        await sandbox.exec("cd() { echo hijacked; }; alias printf=false; set -x; PATH=/nonexistent")
        await sandbox.exec("set +x; unset -f cd; unalias printf; PATH=/usr/local/bin:/usr/bin:/bin")
        assert (await sandbox.exec("echo fine")).stdout == b"fine\n"


class LiveSessions(BackendBase):
    """Consecutive commands in the same shell."""

    @pytest_asyncio.fixture(loop_scope="class")
    async def live(self, backend: TerminalBackend) -> AsyncIterator[Sandbox]:
        """A new sandbox with a live session."""
        async with await backend.open(self.ask(session="live")) as sandbox:
            yield sandbox

    @needs("live")
    async def test_a_live_session_is_one_shell(self, live: Sandbox) -> None:
        """It keeps state that a new shell lacks: unexported variables, arrays, its PID."""
        await live.exec("alias greet='echo hello'")
        before = await live.exec('plain="a b"; list=(1 "2 3"); mkdir d; cd d; f() { echo "$plain"; }; echo $$')
        after = await live.exec('f; greet you; echo "${list[1]} ${PWD##*/}"; echo $$')
        assert after.output == f"a b\nhello you\n2 3 d\n{before.output}"

    @needs("live")
    async def test_a_live_session_has_job_control(self, live: Sandbox) -> None:
        """A later command lists, waits for and kills a job of an earlier one."""
        token = sleep_token()
        await live.exec(f"sleep {token} &")
        assert f"sleep {token}" in (await live.exec("jobs")).output
        assert (await live.exec("kill %1; wait %1 2>/dev/null; echo $?")).stdout == b"143\n"
        assert await self.vanishes(live, token)

    @needs("live")
    async def test_a_live_session_knows_no_end_but_the_command_s(self, live: Sandbox) -> None:
        """A child in the background does not delay the end of the call."""
        token = sleep_token()
        result = await live.exec(f"sleep {token} & echo started; (exit 9)", timeout=self.patience)
        assert (result.stdout, result.exit_code, result.timed_out) == (b"started\n", 9, False)
        assert await self.starts(live, token)

    @needs("live")
    async def test_a_live_session_survives_a_timeout(self, live: Sandbox) -> None:
        """Its state is kept, the output so far is returned, and the command is dead."""
        token = sleep_token()
        await live.exec("kept=yes; mkdir d; cd d")
        command = f"echo before; echo error >&2; touch '{live.workspace}/reached'; sleep {token}; echo after"
        result = await self.runs_out_of_time(live, command)
        assert (result.exit_code, result.timed_out) == (124, True)
        assert (result.stdout, result.stderr) == (b"before\n", b"error\n")
        assert (await live.exec("echo $kept ${PWD##*/}")).output == "yes d\n"
        assert await self.vanishes(live, token)

    @needs("live", "cancel")
    async def test_a_live_session_survives_a_cancelled_call(self, live: Sandbox) -> None:
        """The command is dead, the shell is the same."""
        token = sleep_token()
        await live.exec("kept=yes")
        call = await begin(live, f"sleep {token}", seconds=self.patience)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await live.exec("echo $kept")).output == "yes\n"
        assert await self.vanishes(live, token)

    @needs("live")
    @pytest.mark.parametrize(
        ("command", "code"),
        [("exit 7", 7), ("exec sh -c 'exit 5'", 5), ("set -e; false; echo unreached", 1), ("kill -9 $$", 137)],
        ids=["exit", "exec", "set_e", "kill_9"],
    )
    async def test_the_end_of_a_live_shell_is_no_end_of_the_sandbox(
        self, live: Sandbox, command: str, code: int
    ) -> None:
        """The call returns the shell's exit code, and the next command gets a new shell."""
        result = await live.exec(command)
        assert (result.exit_code, result.stdout) == (code, b"")
        assert (await live.exec("echo next")).stdout == b"next\n"

    @needs("live")
    async def test_a_live_session_keeps_streams_and_bytes_apart(self, live: Sandbox) -> None:
        """They contain no prompt, mark or other output of the shell."""
        result = await live.exec(r"printf 'a\0\377\r\n'; echo error >&2; cat", stdin=b"in\0put")
        assert (result.stdout, result.stderr) == (b"a\0\xff\r\nin\0put", b"error\n")

    @needs("live")
    async def test_a_live_session_merges_the_streams_of_single_calls(self, live: Sandbox) -> None:
        """In the order of their writes; the calls around of it have two streams."""
        lines = alternating_lines(2000)
        for _ in range(2):
            merged = await live.exec(ALTERNATING, merge_stderr=True)
            assert (merged.output, merged.stdout, merged.stderr) == (lines, lines.encode(), b"")
            apart = await live.exec("echo out; echo error >&2")
            assert (apart.stdout, apart.stderr) == (b"out\n", b"error\n")

    @needs("live")
    async def test_cwd_and_env_hold_for_one_call_of_a_live_session(self, live: Sandbox) -> None:
        """As in any session."""
        before = (await live.exec("pwd")).output
        assert (await live.exec("pwd; echo $ONCE", cwd="/", env={"ONCE": "x"})).output == "/\nx\n"
        assert (await live.exec("pwd; echo ${ONCE-unset}")).output == f"{before}unset\n"

    @needs("live")
    async def test_renew_ends_a_live_session(self, live: Sandbox) -> None:
        """Its jobs are dead, its variables gone, its files kept."""
        token = sleep_token()
        await live.exec(f"kept=yes; touch file; sleep {token} &")
        await live.renew()
        assert (await live.exec("echo ${kept-gone}; jobs; ls")).stdout == b"gone\nfile\n"
        assert not await runs_inside(live, token)

    @needs("live")
    async def test_provenance_says_that_a_session_is_live(self, live: Sandbox) -> None:
        """The isolation level is recorded as for any other session."""
        assert live.provenance["isolation"] == self.level()
