"""Tests of background processes: starting, waiting, reading, writing, killing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from hermes_core.contracts.errors import ProcessLimitError
from hermes_core.contracts.sandbox import Processes, ProcessInfo, Sandbox, TerminalBackend
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import eventually, processes_here, runs_inside, sleep_token

_LIMIT = 64
_SLEEP = "exec sleep 600"


class ProcessesBase(BackendBase):
    """Fixtures: the processes of a shared sandbox."""

    @pytest_asyncio.fixture(loop_scope="class")
    async def processes(self, shared: Sandbox) -> AsyncIterator[Processes]:
        """The processes of a shared sandbox; processes that a test leaves running are killed."""
        yield shared.processes
        for info in await shared.processes.list():
            if info.running:
                await shared.processes.kill(info.id, grace=0)

    async def has_written(self, processes: Processes, process_id: str, data: bytes) -> bool:
        """Wait shortly; tell whether a process's output contains something."""

        async def is_there() -> bool:
            return data in (await processes.read(process_id)).data

        return await eventually(is_there, seconds=self.patience)


class BackgroundProcesses(ProcessesBase):
    """Processes without a terminal."""

    @needs("processes")
    async def test_a_process_is_described(self, shared: Sandbox, processes: Processes) -> None:
        """From its start, with its PID inside the sandbox."""
        info = await processes.start(_SLEEP)
        assert (info.command, info.cwd, info.pty) == (_SLEEP, shared.workspace, False)
        assert (info.running, info.exit_code, info.output_bytes) == (True, None, 0)
        assert (await shared.exec(f"kill -0 {info.pid} && echo alive")).output == "alive\n"
        assert await processes.poll(info.id) == info

    @needs("processes")
    async def test_a_process_holds_no_command_up(self, shared: Sandbox, processes: Processes) -> None:
        """It runs beside the session, and a command's timeout does not affect it."""
        info = await processes.start(_SLEEP)
        result = await self.runs_out_of_time(shared, "echo beside; touch reached; sleep 600")
        assert (result.stdout, result.timed_out) == (b"beside\n", True)
        assert (await processes.poll(info.id)).running

    @needs("processes", "state")
    async def test_a_process_starts_where_the_session_is(self, sandbox: Sandbox) -> None:
        """With the session's directory, exports and functions; it can change none of them."""
        await sandbox.exec("mkdir d; cd d; export KEPT='a b'; f() { echo \"f $1\"; }")
        info = await sandbox.processes.start('f 1; echo "$KEPT"; pwd; cd /; export KEPT=other')
        await sandbox.processes.wait(info.id)
        seen = (await sandbox.processes.read(info.id)).data.decode()
        assert seen == f"f 1\na b\n{sandbox.workspace}/d\n"
        assert (await sandbox.exec("echo $KEPT; pwd")).output == f"a b\n{sandbox.workspace}/d\n"

    @needs("processes")
    async def test_cwd_and_env_of_a_process_are_its_own(self, shared: Sandbox, processes: Processes) -> None:
        """Relative to the workspace; a missing directory is an error, not another place."""
        await shared.exec("mkdir sub")
        info = await processes.start('pwd; echo "$ASKED"', cwd="sub", env={"ASKED": "a 'b' $HOME"})
        await processes.wait(info.id)
        assert (await processes.read(info.id)).data.decode() == f"{shared.workspace}/sub\na 'b' $HOME\n"
        with pytest.raises(FileNotFoundError):
            await processes.start("touch ran", cwd="absent")
        assert [entry.path for entry in await shared.list_dir()] == ["sub"]

    @needs("processes")
    @pytest.mark.parametrize(
        ("command", "code"),
        [("true", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -9 $$", 137), ("no-such-command", 127)],
    )
    async def test_exit_codes_of_processes_are_exact(self, processes: Processes, command: str, code: int) -> None:
        """They are those of bash (hermes-agent: always 127)."""
        info = await processes.start(command)
        ended = await processes.wait(info.id, timeout=self.patience)
        assert (ended.running, ended.exit_code) == (False, code)
        assert await processes.poll(info.id) == ended

    @needs("processes")
    async def test_any_quoting_starts_as_it_would_in_bash(self, processes: Processes) -> None:
        """Quotes, heredocs and comments work (hermes-agent: any apostrophe broke the command)."""
        info = await processes.start("echo 'it'\\''s' \"$((1+1))\"\ncat <<'EOF'\n$HOME 'x'\nEOF\necho end # comment")
        await processes.wait(info.id)
        assert (await processes.read(info.id)).data == b"it's 2\n$HOME 'x'\nend\n"

    @needs("processes")
    async def test_waiting_ends_with_the_process_or_the_time(self, processes: Processes) -> None:
        """The result says which, for every waiter, and the process is not affected."""
        info = await processes.start("read -r line; exit 3")
        assert (await processes.wait(info.id, timeout=0.1)).running
        waiting = [asyncio.create_task(processes.wait(info.id)) for _ in range(3)]
        waiting[0].cancel()
        await processes.write(info.id, b"go\n")
        first, *others = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert [other.exit_code for other in others if isinstance(other, ProcessInfo)] == [3, 3]

    @needs("processes")
    async def test_a_child_in_the_background_does_not_hold_the_end_up(self, processes: Processes) -> None:
        """A process ends when its shell ends, even if others keep its output open."""
        info = await processes.start("sleep 600 & echo started")
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 0
        await processes.kill(info.id, grace=0)

    @needs("processes")
    async def test_output_is_there_while_a_process_runs(self, processes: Processes) -> None:
        """A single character is visible at once (hermes-agent: only after 4096)."""
        info = await processes.start("printf .; printf , >&2; " + _SLEEP)
        assert await self.has_written(processes, info.id, b".,")
        assert (await processes.read(info.id)).running

    @needs("processes")
    async def test_output_is_read_from_any_place(self, processes: Processes) -> None:
        """Page by page, from the end, after the end; readers are independent."""
        info = await processes.start("printf 0123456789")
        await processes.wait(info.id)
        pages = [await processes.read(info.id, offset=offset, limit=4) for offset in (0, 4, 8, 0, -3, 10, 99)]
        assert [page.data for page in pages] == [b"0123", b"4567", b"89", b"0123", b"789", b"", b""]
        assert [page.start for page in pages] == [0, 4, 8, 0, 7, 10, 10]
        assert {(page.total, page.running) for page in pages} == {(10, False)}

    @needs("processes")
    async def test_output_that_is_not_kept_is_told(self, processes: Processes) -> None:
        """A reader's output begins at the stated offset, and all output is counted."""
        whole = b"".join(b"%07d\n" % number for number in range(1_000_000))
        info = await processes.start("seq -f %07.0f 0 999999")
        assert (await processes.wait(info.id, timeout=60)).output_bytes == len(whole)
        piece = await processes.read(info.id, offset=8)
        assert piece.total == len(whole)
        assert piece.start >= 8
        assert len(piece.data) > 0
        assert piece.data == whole[piece.start : piece.start + len(piece.data)]
        assert (await processes.read(info.id, offset=-16)).data == whole[-16:]

    @needs("processes")
    async def test_output_of_processes_is_bytes(self, processes: Processes) -> None:
        """It is not decoded."""
        info = await processes.start(r"printf '\000\377\r\n'")
        await processes.wait(info.id)
        assert (await processes.read(info.id)).data == b"\0\xff\r\n"

    @needs("processes")
    async def test_input_reaches_a_process_until_it_is_closed(self, processes: Processes) -> None:
        """All of it, in order; then the process reads the end of file."""
        info = await processes.start("sha256sum; echo end")
        for piece in (b"a" * 100_000, b"\0\xff\n"):
            assert await processes.write(info.id, piece) == len(piece)
        await processes.close_stdin(info.id)
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 0
        digest = hashlib.sha256(b"a" * 100_000 + b"\0\xff\n").hexdigest().encode()
        assert (await processes.read(info.id)).data == digest + b"  -\nend\n"

    @needs("processes")
    async def test_input_that_nobody_reads_is_a_broken_pipe(self, processes: Processes) -> None:
        """After the process has ended, and after its input was closed."""
        ended = await processes.start("true")
        await processes.wait(ended.id)
        closed = await processes.start(_SLEEP)
        await processes.close_stdin(closed.id)
        for info in (ended, closed):
            with pytest.raises(BrokenPipeError):
                await processes.write(info.id, b"x")

    @needs("processes")
    @pytest.mark.parametrize(
        "command",
        ["sleep TOKEN; true", "setsid sleep TOKEN & sleep TOKEN; true", "(sleep TOKEN &); sleep TOKEN & wait"],
        ids=["child", "setsid", "orphan"],
    )
    async def test_killing_takes_everything_a_process_started(
        self, shared: Sandbox, processes: Processes, command: str
    ) -> None:
        """The result is the observed state (hermes-agent said "killed" of a running process)."""
        token = sleep_token()
        info = await processes.start(command.replace("TOKEN", token))
        assert await self.starts(shared, token)
        killed = await processes.kill(info.id)
        # A shell whose child is killed first may still reach its next command and exit by itself.
        assert (killed.running, killed.exit_code is None) == (False, False)
        assert not await runs_inside(shared, token)

    @needs("processes")
    async def test_killing_ends_what_is_deaf_to_signals(self, processes: Processes) -> None:
        """After the grace period it uses SIGKILL."""
        info = await processes.start("trap '' TERM INT HUP; echo deaf; while :; do sleep 0.05; done")
        assert await self.has_written(processes, info.id, b"deaf\n")
        killed = await processes.kill(info.id, grace=0.1)
        assert (killed.running, killed.exit_code) == (False, 137)

    @needs("processes")
    async def test_killing_leaves_others_alone(self, shared: Sandbox, processes: Processes) -> None:
        """An ended process keeps its exit code; other processes and the session continue."""
        token = sleep_token()
        await shared.exec(f"sleep {token} & true")
        other, ended, doomed = [await processes.start(command) for command in (_SLEEP, "exit 4", _SLEEP)]
        await processes.wait(ended.id)
        assert (await processes.kill(ended.id)).exit_code == 4
        await processes.kill(doomed.id)
        assert (await processes.poll(other.id)).running
        assert await self.starts(shared, token)

    @needs("processes")
    async def test_processes_are_listed_oldest_first(self, sandbox: Sandbox) -> None:
        """Running processes, and those that ended recently."""
        first, second, third = [await sandbox.processes.start(text) for text in ("exit 1", _SLEEP, "exit 2")]
        await asyncio.gather(*(sandbox.processes.wait(info.id) for info in (first, third)))
        listed = await sandbox.processes.list()
        assert [(info.id, info.exit_code) for info in listed] == [(first.id, 1), (second.id, None), (third.id, 2)]
        assert len({first.id, second.id, third.id}) == 3

    @needs("processes")
    async def test_an_unknown_process_is_ProcessLookupError(self, processes: Processes) -> None:  # noqa: N802 - an exception's name
        """For every call with an id."""
        calls: list[Callable[[str], Awaitable[object]]] = [
            processes.poll,
            processes.read,
            processes.wait,
            processes.close_stdin,
            processes.kill,
        ]
        for call in calls:
            with pytest.raises(ProcessLookupError):
                await call("proc_of_nobody")
        with pytest.raises(ProcessLookupError):
            await processes.write("proc_of_nobody", b"x")

    @needs("processes")
    async def test_processes_of_other_sandboxes_are_unknown(
        self, backend: TerminalBackend, processes: Processes
    ) -> None:
        """Not listed and not found by id (hermes-agent: any rollout could kill any process)."""
        info = await processes.start(_SLEEP)
        async with await backend.open(self.ask()) as other:
            assert await other.processes.list() == []
            with pytest.raises(ProcessLookupError):
                await other.processes.kill(info.id)
        assert (await processes.poll(info.id)).running

    @needs("processes")
    async def test_many_processes_run_or_are_refused(self, sandbox: Sandbox) -> None:
        """At least 64 run; one more starts or is refused, and a refusal does not end the others."""
        started = [await sandbox.processes.start(_SLEEP) for _ in range(_LIMIT)]
        try:
            started.append(await sandbox.processes.start(_SLEEP))
        except ProcessLimitError:
            await sandbox.processes.kill(started.pop().id, grace=0)
            started.append(await sandbox.processes.start(_SLEEP))
        running = [info for info in await sandbox.processes.list() if info.running]
        assert [info.id for info in running] == [info.id for info in started]

    @needs("processes", "cancel")
    async def test_a_cancelled_start_leaves_nothing(self, shared: Sandbox, processes: Processes) -> None:
        """At whatever point it is cancelled."""
        token = sleep_token()
        for steps in range(6):
            call = asyncio.create_task(processes.start(f"exec sleep {token}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert await self.vanishes(shared, token)

    @needs("processes")
    async def test_processes_end_with_a_renewal(self, sandbox: Sandbox) -> None:
        """None is listed, known or running."""
        token = sleep_token()
        info = await sandbox.processes.start(f"exec sleep {token}")
        assert await self.starts(sandbox, token)
        await sandbox.renew()
        assert await sandbox.processes.list() == []
        assert not await runs_inside(sandbox, token)
        with pytest.raises(ProcessLookupError):
            await sandbox.processes.poll(info.id)

    @needs("processes", "visible_processes")
    async def test_processes_end_with_the_sandbox(self, backend: TerminalBackend) -> None:
        """Even one that has left its session."""
        token = sleep_token()
        sandbox = await backend.open(self.ask())
        await sandbox.processes.start(f"setsid sleep {token} & exec sleep {token}")
        assert await eventually(lambda: len(processes_here(token)) == 2, seconds=self.patience)
        await sandbox.aclose()
        assert await eventually(lambda: processes_here(token) == [], seconds=self.patience)
