"""Tests of background processes on a terminal: prompts, screen size and interrupts."""

from __future__ import annotations

from hermes_core.contracts.sandbox import Processes
from hermes_testing.suites.backend.processes import ProcessesBase
from hermes_testing.suites.base import needs


class Terminals(ProcessesBase):
    """Processes started with `pty`."""

    @needs("processes", "pty")
    async def test_a_terminal_is_one(self, processes: Processes) -> None:
        """On all three streams, controlling, and with the requested size."""
        info = await processes.start(
            "test -t 0 && test -t 1 && test -t 2 && stty size < /dev/tty", pty=True, rows=7, cols=33
        )
        assert info.pty
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 0
        assert (await processes.read(info.id)).data == b"7 33\r\n"

    @needs("processes", "pty")
    async def test_an_interactive_program_is_driven(self, processes: Processes) -> None:
        """A shell with a prompt takes one line after another, and a password is not echoed."""
        info = await processes.start("PS1='ready> ' exec bash --norc --noprofile --noediting -i", pty=True)
        assert await self.has_written(processes, info.id, b"ready> ")
        await processes.write(info.id, b"read -rsp 'password: ' given; echo; echo got ${#given}\n")
        # The prompt itself, not its echo as part of the command.
        assert await self.has_written(processes, info.id, b"\npassword: ")
        await processes.write(info.id, b"hidden-word\n")
        assert await self.has_written(processes, info.id, b"got 11\r\n")
        assert b"hidden-word" not in (await processes.read(info.id)).data
        await processes.write(info.id, b"exit 6\n")
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 6

    @needs("processes", "pty")
    async def test_an_interrupt_ends_the_program_not_the_shell(self, processes: Processes) -> None:
        """Like Ctrl-C."""
        # The program itself reports its start: a shell that has not started it yet would get the signal.
        program = "sh -c 'echo begun; exec sleep 600'"
        info = await processes.start(f"trap : INT; {program}; echo after $?", pty=True)
        assert await self.has_written(processes, info.id, b"begun\r\n")
        await processes.write(info.id, b"\x03")
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 0
        assert b"after 130\r\n" in (await processes.read(info.id)).data

    @needs("processes", "pty")
    async def test_a_terminal_changes_its_size(self, processes: Processes) -> None:
        """The program gets the signal."""
        info = await processes.start("trap 'stty size' WINCH; echo begun; while :; do sleep 0.05; done", pty=True)
        assert await self.has_written(processes, info.id, b"begun\r\n")
        await processes.resize(info.id, rows=11, cols=44)
        assert await self.has_written(processes, info.id, b"11 44\r\n")

    @needs("processes", "pty")
    async def test_a_terminal_s_input_ends(self, processes: Processes) -> None:
        """With the end-of-file character."""
        info = await processes.start("cat; echo end", pty=True)
        await processes.write(info.id, b"line\n")
        assert await self.has_written(processes, info.id, b"line\r\nline\r\n")
        await processes.close_stdin(info.id)
        assert (await processes.wait(info.id, timeout=self.patience)).exit_code == 0
        assert (await processes.read(info.id)).data.endswith(b"end\r\n")

    @needs("processes", "pty")
    async def test_a_program_on_a_terminal_is_killed(self, processes: Processes) -> None:
        """Even one that ignores the hang-up signal."""
        info = await processes.start("trap '' HUP TERM; echo begun; while :; do sleep 0.05; done", pty=True)
        assert await self.has_written(processes, info.id, b"begun\r\n")
        killed = await processes.kill(info.id, grace=0.1)
        assert (killed.running, killed.exit_code) == (False, 137)
