"""A rollout's interactive terminal: a bash on a terminal in the sandbox, and its screen in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar, final

from hermes_core.contracts.errors import BackendError, ToolFailureError
from hermes_core.contracts.sandbox import ProcessInfo, Sandbox
from hermes_tools.interactive.session import shell_integration as shell
from hermes_tools.interactive.session.prompt_command import CommandEnd, TypedCommand
from hermes_tools.interactive.session.terminal_requirements import private_directory, require_emulation
from hermes_tools.unfinished_output import count_unfinished_bytes

_PIECE: Final = 1 << 16
_TYPED_AT_ONCE: Final = 1 << 13
_PIECES_AT_ONCE: Final = 4
_MOST_WORK: Final = 40_000_000
"""Work for the output of one look, at most 256 KiB. Text and its recording take 20 per byte; output that consists of
tabs, colours, accents or corrections takes up to 130."""
_WORK_TO_CATCH_UP: Final = 4 * _MOST_WORK
"""Work for all output that a sandbox keeps between two looks, which is a megabyte."""
_WORK_A_SECOND: Final = 20_000_000
_ROUNDS: Final = 16
"""Looks at the output of a shell that has ended or is at its prompt: four megabytes, more than the sandbox keeps."""
_READY: Final = 20.0
_RECOVERS: Final = 2.0
_COMES_BACK: Final = 10.0
"""Seconds within which a shell shows its prompt after C-c, even on a busy machine."""
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_INTERRUPT: Final = b"\x03"
_LOOKS_AFTER_REPAIR: Final = 50

_T = TypeVar("_T")


class TerminalLostError(ToolFailureError):
    """The terminal no longer exists, because its sandbox was renewed or ended its processes."""


class TerminalBusyError(ToolFailureError):
    """A program runs in the terminal, so a command would be typed into that program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOutput:
    """A piece of the raw output. The next one begins at `end`; `more` is true if it is already available."""

    data: bytes
    start: int
    end: int
    more: bool


@final
class TerminalSession:
    """An interactive shell and its screen. Create it with `start`; it ends with the sandbox.

    Each reader of the raw output keeps its own position.
    """

    def __init__(self, sandbox: Sandbox, directory: str, *, nonce: str, process_id: str, rows: int, cols: int) -> None:
        from hermes_tools.interactive.session.shown_output import ShownOutput

        self._output = ShownOutput(nonce, rows=rows, cols=cols)
        self.screen = self._output.screen
        self.ended: ProcessInfo | None = None
        self.lock = asyncio.Lock()
        self._sandbox = sandbox
        self._directory = directory
        self._id = process_id
        self._work = 0
        self._typed_in = False

    @property
    def missed(self) -> int:
        """Number of bytes that the screen does not show, because they came too fast or were too much work."""
        return self._output.missed

    @classmethod
    async def start(cls, sandbox: Sandbox, *, rows: int, cols: int) -> Self:
        """Start a shell in the session's current directory, with its exported variables, and wait for its prompt.

        Raises:
            UnavailableComponentError: pyte or ptyprocess is not installed here.
            ToolFailureError: The shell has not shown a prompt.
        """
        require_emulation()
        directory = await private_directory(sandbox)
        nonce = uuid.uuid4().hex[:12]
        await sandbox.write_file(f"{directory}/{shell.STARTUP}", shell.startup_text(directory, nonce), mode=0o600)
        info = await sandbox.processes.start(
            shell.shell_command(directory), pty=True, rows=rows, cols=cols, env={"TERM": "xterm-256color"}
        )
        session = cls(sandbox, directory, nonce=nonce, process_id=info.id, rows=rows, cols=cols)
        try:
            await session._first_prompt()
        except BaseException:
            # The caller gets no session, so it could not stop the shell.
            await asyncio.shield(session.stop())
            raise
        return session

    async def _first_prompt(self) -> None:
        if await self._until(self._prompt_after(0), _READY) is None:
            raise ToolFailureError(f"The terminal's shell has not shown a prompt. Its screen:\n{self.screen.text}")

    async def stop(self) -> None:
        """End the shell and everything that runs in it."""
        with contextlib.suppress(ProcessLookupError, BackendError):
            await self._sandbox.processes.kill(self._id, grace=0.2)
        with contextlib.suppress(OSError, BackendError):
            await self._sandbox.remove(self._directory)

    async def resize(self, *, rows: int, cols: int) -> None:
        """Change the size, and notify the programs in the terminal."""
        if (rows, cols) != (self.screen.rows, self.screen.cols):
            await self._ask(self._sandbox.processes.resize(self._id, rows=rows, cols=cols))
            self.screen.resize(rows=rows, cols=cols)

    async def catch_up(self, rounds: int) -> None:
        """Update the screen while a program can write more. Each round leaves less work for the next."""
        left = _WORK_TO_CATCH_UP
        for _ in range(rounds):
            if not await self.pump(left):
                break
            left -= self._work

    async def pump(self, allowance: int = _MOST_WORK) -> bool:
        """Update the screen with at most this work, plus some for the end. Return whether there was new output."""
        shown = self._output
        before, self._work = shown.offset, 0
        for number in range(_PIECES_AT_ONCE):
            output = await self._ask(self._sandbox.processes.read(self._id, offset=shown.offset, limit=_PIECE))
            shown.skip_to(output.start)
            is_last = len(output.data) < _PIECE or number == _PIECES_AT_ONCE - 1
            self._work += await shown.take(output.data, allowance - self._work, is_last=is_last)
            if answers := shown.answers():
                await self._write(answers)
            if is_last:
                break
        return shown.offset > before

    async def _write(self, data: bytes) -> int:
        try:
            return await self._ask(self._sandbox.processes.write(self._id, data))
        except BrokenPipeError:
            return 0  # the shell has ended, which the next poll reports

    async def _ask(self, asking: Awaitable[_T]) -> _T:
        try:
            return await asking
        except ProcessLookupError as error:
            raise TerminalLostError(
                "The terminal is gone: its sandbox was renewed, or has ended everything that ran in it. "
                "The next call starts a new terminal."
            ) from error

    async def send(self, data: bytes) -> int:
        """Type data into the terminal. Return how many bytes it has taken."""
        self._typed_in = True
        taken = 0
        for at in range(0, len(data), _TYPED_AT_ONCE):
            bite = data[at : at + _TYPED_AT_ONCE]
            count = await self._write(bite)
            taken += count
            if count < len(bite):
                break
        return taken

    async def state(self) -> shell.ShellState | None:
        """Return the state of the shell, or None if it cannot be read."""
        for _ in range(5):
            try:
                data = await self._sandbox.read_file(f"{self._directory}/{shell.STATUS}", length=100)
            except OSError:
                return None
            state = shell.read_state(data)
            if state is not None:
                return state
            await asyncio.sleep(_SHORTEST_PAUSE)
        return None

    def _prompt_after(self, number: int) -> Callable[[], Awaitable[shell.ShellState | None]]:
        async def look() -> shell.ShellState | None:
            state = await self.state()
            return state if state is not None and state.kind == "prompt" and state.number > number else None

        return look

    async def _until(self, look: Callable[[], Awaitable[_T | None]], seconds: float) -> _T | None:
        """Update the screen until `look` returns a result, the shell has ended, or the time is over."""
        end = time.monotonic() + seconds
        pause = _SHORTEST_PAUSE
        while True:
            news = await self.pump()
            if (found := await look()) is not None:
                await self.pump()
                return found
            if await self.has_ended() or time.monotonic() >= end:
                return None
            pause = _SHORTEST_PAUSE if news else min(2 * pause, _LONGEST_PAUSE)
            # After a second of work, wait about a second before the next look, so that other tasks are not delayed.
            rest = min(max(pause, self._work / _WORK_A_SECOND), max(0.0, end - time.monotonic()))
            await self._ask(self._sandbox.processes.wait(self._id, timeout=rest))

    async def has_ended(self) -> bool:
        """Return whether the shell has ended."""
        if self.ended is None:
            info = await self._ask(self._sandbox.processes.poll(self._id))
            if not info.running:
                await self.catch_up(_ROUNDS)
                self.ended = info
        return self.ended is not None

    async def run(self, command: str, *, timeout: float) -> CommandEnd:
        """Run a command at the shell's prompt and wait for its end.

        The shell reads the command from a file, so that it can contain everything that a script can. After `timeout`
        seconds the command gets C-c. If it still runs after that, it is left running.

        Raises:
            TerminalBusyError: The shell is not at its prompt; nothing was run.
        """
        await self.pump()
        number = await self._free_prompt()
        typed = shell.trigger(self._directory)
        rows = (self.screen.cursor[1] + len(typed)) // self.screen.cols + 1
        await self._put(shell.COMMAND, command.encode("utf-8", "surrogateescape") + b"\n")
        await self._put(shell.SHOWN, shell.shown_instead(command, rows=rows))
        typed_command = self._output.begin_command(number)
        await self._write(f"{typed}\r".encode())
        state = await self._until(self._end_of(typed_command), timeout)
        timed_out = state is None and self.ended is None
        if timed_out:
            await self._write(_INTERRUPT)
            state = await self._until(self._end_of(typed_command), _COMES_BACK)
        await self._put(shell.SHOWN, b"")
        return await self._end_of_command(state, timed_out=timed_out)

    def _end_of(self, command: TypedCommand) -> Callable[[], Awaitable[shell.ShellState | None]]:
        at_prompt = self._prompt_after(command.number)

        async def look() -> shell.ShellState | None:
            state = await at_prompt()
            if state is None and command.is_closed and await self.state() is None:
                return await self._repair_directory(command)
            return state

        return look

    async def _repair_directory(self, command: TypedCommand) -> shell.ShellState | None:
        """Restore the directory if it was deleted while the shell is at its prompt. The exit code is lost."""
        if command.is_repaired:
            return None
        command.is_repaired = True
        await self._put(shell.SHOWN, b"")
        await self._write(_INTERRUPT)
        at_prompt = self._prompt_after(command.number)
        for _ in range(_LOOKS_AFTER_REPAIR):
            if (state := await at_prompt()) is not None:
                return replace(state, exit_code=None)
            await asyncio.sleep(_SHORTEST_PAUSE)
        return None

    async def _put(self, name: str, data: bytes) -> None:
        if self.ended is None:
            await self._sandbox.write_file(f"{self._directory}/{name}", data, mode=0o600)

    async def _end_of_command(self, state: shell.ShellState | None, *, timed_out: bool) -> CommandEnd:
        command = self._output.command

        async def is_closed() -> bool | None:
            return command.is_closed or None

        if state is not None:
            if await self._until(is_closed, _RECOVERS) is None:
                await self.catch_up(_ROUNDS)
            return CommandEnd(
                state="finished", exit_code=state.exit_code, output=command.recording.text(), timed_out=timed_out
            )
        output = command.recording.text()
        if self.ended is not None:
            return CommandEnd(state="shell_ended", exit_code=self.ended.exit_code, output=output, timed_out=timed_out)
        return CommandEnd(state="running", exit_code=None, output=output, timed_out=True)

    async def _free_prompt(self) -> int:
        state = await self.state()
        if state is None and self._output.command.is_closed and not self._typed_in:
            self._output.command.is_repaired = False
            state = await self._repair_directory(self._output.command)
        if state is None:
            raise TerminalBusyError(
                f"The state of the terminal's shell is unknown: {self._directory} is damaged. "
                "Nothing was run. Stop the terminal with tmux (action stop); the next call starts a new one."
            )
        if state.kind == "running" or state.number <= self._output.command.number:
            raise _busy(self.screen.text)
        if self._typed_in:
            # The typed text can be an incomplete command; C-c gives a clean prompt, which has another number.
            await self._write(_INTERRUPT)
            state = await self._until(self._prompt_after(state.number), _COMES_BACK)
            if state is None:
                raise _busy(self.screen.text)
            self._typed_in = False
        return state.number

    async def settle(self, seconds: float) -> None:
        """Update the screen for this many seconds."""

        async def never() -> None:
            return None

        await self._until(never, seconds)

    async def prompt_after(self, number: int, *, at_least: int, seconds: float) -> shell.ShellState | None:
        """Wait for the prompt after the text that was typed at prompt `number` and has `at_least` commands.

        A command can read the rest of the text as its input. Therefore a prompt with no new output is also the end.
        """
        quiet_since = time.monotonic()
        seen = (-1, -1)

        async def look() -> shell.ShellState | None:
            nonlocal quiet_since, seen
            state = await self.state()
            if state is None or state.kind != "prompt" or state.number <= number:
                return None
            if (self._output.offset, state.number) != seen:
                seen, quiet_since = (self._output.offset, state.number), time.monotonic()
            is_last = state.number >= number + at_least
            return state if is_last or time.monotonic() - quiet_since > 0.5 else None

        return await self._until(look, seconds)

    async def raw(self, offset: int, limit: int) -> RawOutput:
        """Return at most `limit` bytes of raw output from byte `offset` on, in whole characters and sequences."""
        output = await self._ask(self._sandbox.processes.read(self._id, offset=offset, limit=limit))
        end = output.start + len(output.data)
        # An incomplete character or sequence at the end is left to the next piece, unless no more output can follow or
        # it fills the whole piece.
        cut = count_unfinished_bytes(output.data) if output.running or end < output.total else 0
        if cut == len(output.data) and end < output.total:
            cut = 0
        data = self._output.marks.strip(output.data[: len(output.data) - cut])
        return RawOutput(data=data, start=output.start, end=end - cut, more=end < output.total)


def _busy(screen: str) -> TerminalBusyError:
    return TerminalBusyError(
        "The terminal is busy: a program still runs in it, and would get the command as input. Nothing was run. Use "
        "tmux to look (capture), to answer or interrupt it (send_keys, such as C-c), or to end the terminal (stop)."
        f" The screen:\n{screen}"
    )
