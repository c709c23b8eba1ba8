"""Client of a shell that serves a sandbox, over a byte stream."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_sandbox.posix_shell.confinement import confinement_message
from hermes_sandbox.posix_shell.source import shell_message
from hermes_sandbox.protocol.streams import AgentStream

_LINE: Final = 256
"""Bytes of an answer's line, including padding and the newline."""
_GRACE: Final = 60.0
"""Seconds within which the sandbox must answer a request that was stopped."""
_CLOSING: Final = 3.0
_RING: Final = 4096
"""Minimum bytes that the shell keeps of the end of an output."""
_READ: Final = 65536
"""Maximum bytes that the shell reads at once, which it can keep beyond the requested limit."""
_BOUNDS: Final = {
    "own": "{} of its user, by RLIMIT_NPROC",
    "more": "{} more than its user had, by RLIMIT_NPROC",
    "none": "none: a shell creates no control group, and RLIMIT_NPROC has no effect on the commands' user",
}


@dataclass(frozen=True, slots=True)
class Captured:
    """One output stream: its first and last bytes, and its total length."""

    head: bytes
    tail: bytes
    total: int

    @property
    def omitted(self) -> int:
        """Number of bytes that were not kept."""
        return self.total - len(self.head) - len(self.tail)


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a script. `code` is the exit code of its shell."""

    code: int
    out: Captured
    err: Captured


@dataclass(slots=True)
class _Asked:
    number: int
    limit: int
    token: bytes
    future: asyncio.Future[Ran]
    over: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """Settings of the sandbox that a shell serves.

    `name` marks its processes. `folder` is a directory for the shell's files, without blanks in its path; /run or /tmp
    if None. `identity` is the user of the commands, if it is not the shell's own. `processes` is the process limit,
    None if the host enforces it; `shared_user` says whether other processes have the same user. `confine_sockets`
    forbids all socket families except those that a network namespace confines.
    """

    name: str
    folder: str | None
    identity: tuple[int, int] | None
    file_size_mb: int | None
    processes: int | None = None
    shared_user: bool = False
    confine_sockets: bool = False

    def words(self) -> str:
        """Return the settings as the words of the first request."""
        uid, gid = self.identity or ("-", "-")
        # In units of 512 bytes, as in POSIX. bash uses 1024 unless it is called sh.
        blocks = "-" if self.file_size_mb is None else self.file_size_mb * 2048
        more = "+" if self.shared_user or self.identity is None else ""
        processes = "-" if self.processes is None else f"{more}{self.processes}"
        return f"{self.name} {uid} {gid} {self.folder or '-'} {blocks} {processes}"


class ShellClient:
    """Runs scripts through a shell. Several can run at once, each with its own number and secret.

    An answer begins with the secret of its request, which is never in a variable, a file or an argument of a command.
    An answer with another beginning was written by another program, and ends the sandbox.
    """

    def __init__(self, stream: AgentStream) -> None:
        self.pid = 0
        self.means = ""
        self.folder = ""
        self.process_bound: str | None = None
        """The process limit and its mechanism; None if the shell was not asked to set one."""
        self._stream = stream
        self._asked: dict[str, _Asked] = {}
        self._kills: dict[str, asyncio.Future[None]] = {}
        self._number = 0
        self._lost: str | None = None
        self._suspended: str | None = None
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, stream: AgentStream, settings: ShellSettings, *, timeout: float) -> Self:
        """Greet a shell that was started with `shell_command`.

        Raises:
            BackendError: The shell does not answer, or cannot serve the sandbox.
        """
        client = cls(stream)
        try:
            async with asyncio.timeout(timeout):
                await client._greet(settings)
        except (asyncio.IncompleteReadError, OSError, TimeoutError) as error:
            try:
                said = (await stream.diagnose()).strip()[-2000:]
            finally:
                await client.aclose()
            what = str(error) or type(error).__name__
            raise BackendError(f"the shell did not start ({what}); its output: {said}") from error
        except BaseException:
            await client.aclose()
            raise
        client._reader = asyncio.get_running_loop().create_task(client._read())
        return client

    async def _greet(self, settings: ShellSettings) -> None:
        nonce = secrets.token_hex(16)
        first = confinement_message(nonce, settings.folder) if settings.confine_sockets else b""
        self._stream.writer.write(first + shell_message() + f"hello {nonce} {settings.words()}\n".encode())
        found, kind, *words = (await self._line()) or ["", ""]
        if found != nonce:
            raise BackendError(f"expected the shell's greeting, got {found[:80]!r}")
        if kind != "ready":
            raise _refusal(kind, settings)
        self.pid, self.means, self.folder = int(words[0]), words[1], words[2]
        if settings.processes is not None:
            self.process_bound = _BOUNDS[words[3]].format(settings.processes)

    async def _line(self) -> list[str]:
        line = await self._stream.reader.readexactly(_LINE)
        return line.decode(errors="replace").split()

    @property
    def lost(self) -> str | None:
        """Why the shell takes no more requests; None while it does."""
        return self._lost or self._suspended

    async def run(self, script: bytes, stdin: bytes = b"", *, limit: int, deadline: float) -> tuple[Ran, bool]:
        """Run a script to its end, or stop it after `deadline` seconds. Return its result and whether it was stopped.

        When this is cancelled, all processes of the script have been killed before it returns.
        """
        if self.lost is not None:
            raise SandboxLostError(self.lost)
        self._number += 1
        nonce, token = secrets.token_hex(16), secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        asked = _Asked(self._number, limit, token.encode(), loop.create_future(), loop.create_future())
        asked.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._asked[nonce] = asked
        line = f"run {nonce} {asked.number} {token} {limit} {len(script)} {len(stdin)}\n"
        self._stream.writer.write(b"".join((line.encode(), script, stdin)))
        try:
            done, _ = await asyncio.wait((asked.future,), timeout=deadline)
            if not done:
                await self._stop(asked)
        except asyncio.CancelledError:
            await self._stop(asked)
            raise
        return asked.future.result(), not done

    async def _stop(self, asked: _Asked) -> None:
        """Kill the processes of a request, and wait for its answer."""
        if asked.over.done():
            return
        nonce = secrets.token_hex(16)
        killed = self._kills[nonce] = asyncio.get_running_loop().create_future()
        self._stream.writer.write(f"kill {nonce} {asked.number}\n".encode())
        done, _ = await asyncio.wait((asked.over,), timeout=_GRACE)
        if not done:
            answered = (
                "although its processes were killed" if killed.done() else "and neither was the request to kill it"
            )
            self.fail(f"a command that was stopped has not been answered within {_GRACE:g} s, {answered}")

    async def _read(self) -> None:
        try:
            while True:
                nonce, kind, *words = [*(await self._line()), "", ""]
                if kind == "killed" and nonce in self._kills:
                    self._kills.pop(nonce).set_result(None)
                elif kind == "done" and nonce in self._asked:
                    await self._finish(nonce, [int(word) for word in words if word])
                else:
                    self.fail(f"another program has written to the shell's stream: {nonce[:80]!r}")
                    return
        except asyncio.IncompleteReadError as error:
            rest = f" after {error.partial[:200]!r}" if error.partial else ""
            self.fail(f"the shell has ended{rest}")
        except (OSError, ValueError) as error:
            self.fail(f"the shell's stream is broken: {error}")

    async def _finish(self, nonce: str, numbers: Sequence[int]) -> None:
        asked = self._asked[nonce]
        code, *sizes = numbers
        out, err = sizes[:5], sizes[5:]
        if len(err) != 5:
            raise ValueError(f"expected an answer of 11 numbers, got {len(numbers)}")
        streams = [await self._read_capture(asked, part) for part in (out, err)]
        del self._asked[nonce]
        asked.over.set_result(None)
        if asked.future.done():
            return
        if out[0] or err[0]:
            asked.future.set_exception(BackendError("the output was lost: the sandbox's disk is full"))
        else:
            asked.future.set_result(Ran(code, *streams))

    async def _read_capture(self, asked: _Asked, sizes: Sequence[int]) -> Captured:
        _, head, before, last, dropped = sizes
        most = max(asked.limit, _RING) + _READ
        if not (0 <= head <= asked.limit and 0 <= before <= most and 0 <= last <= most and dropped >= 0):
            raise ValueError(f"expected an output of at most {asked.limit} bytes, got {sizes}")
        start = await self._stream.reader.readexactly(head)
        end = await self._stream.reader.readexactly(before + last)
        return _capture(start, end, dropped, asked)

    def fail(self, reason: str) -> None:
        """Give up the shell: all current and future requests raise `SandboxLostError`."""
        if self._lost is None:
            self._lost = f"the sandbox is lost: {reason}"
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            _give_up(waiting, self._lost)
            if not waiting.over.done():
                waiting.over.set_result(None)
        for kill in self._kills.values():
            kill.cancel()
        if not self._stream.writer.transport.is_closing():
            self._stream.writer.transport.abort()

    def suspend(self, reason: str) -> None:
        """Fail all current and future requests, without giving up the shell."""
        if self._lost is None:
            self._suspended = f"the sandbox is lost: {reason}"
            for asked in self._asked.values():
                _give_up(asked, self._suspended)

    async def restart(self) -> AgentStream:
        """End all processes in the sandbox and return the stream, which then leads to a new shell.

        Raises:
            SandboxLostError: The restart failed. The shell is given up.
        """
        # All requests are answered first, so that no old answer mixes with those of the new shell.
        await asyncio.gather(*(self._stop(asked) for asked in list(self._asked.values())))
        if self._kills:
            await asyncio.wait(self._kills.values(), timeout=_GRACE)
        if self._kills or self._lost is not None:
            self.fail("its shell could not be restarted")
            raise SandboxLostError(str(self._lost))
        self._lost = "the shell was restarted"
        await self._end_reader()
        self._stream.writer.write(f"restart {secrets.token_hex(16)}\n".encode())
        return self._stream

    async def _end_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))

    async def aclose(self) -> None:
        """Close the stream; the shell then kills everything and exits."""
        self.fail("it was closed")
        self._stream.writer.close()
        await self._end_reader()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._stream.writer.wait_closed()


def _give_up(asked: _Asked, reason: str) -> None:
    if not asked.future.done():
        asked.future.set_exception(SandboxLostError(reason))


def _refusal(kind: str, settings: ShellSettings) -> BackendError:
    if kind == "unconfined":
        return SandboxRefusedError(
            "the network of this sandbox cannot be limited: its shell cannot forbid other sockets",
            hint="this requires x86-64 or aarch64, a kernel with CONFIG_SECCOMP_FILTER, `uname`, and a directory in "
            "/run, /tmp or /dev/shm from which programs can be executed; or choose --network full",
        )
    if kind == "no-user":
        return BackendError(
            f"commands cannot run as user {settings.identity}: "
            "the image has no setpriv, and no su that knows this user",
            hint="install python3 or util-linux in the image, or list the user in its /etc/passwd",
        )
    return BackendError("the shell finds no directory for its files", hint="make /run or /tmp writable")


def _capture(start: bytes, end: bytes, dropped: int, asked: _Asked) -> Captured:
    """Return the output up to the end of the command, with at most `limit` bytes of its end."""
    total = len(start) + dropped + len(end)
    mark = b"\n" + asked.token + b"\n"
    if not dropped:
        whole = (start + end).partition(mark)[0]
        head, rest = whole[: len(start)], whole[len(start) :]
        return Captured(head, rest[-asked.limit :] if asked.limit else b"", len(whole))
    rest, found, after = end.partition(mark)
    total -= len(found) + len(after)
    return Captured(start, rest[-asked.limit :] if asked.limit else b"", total)
