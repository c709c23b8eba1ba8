"""Sandboxes of the stand-in: real processes in separate namespaces, created by bubblewrap."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from standin_bounds import Bound

INIT = Path(__file__).with_name("standin_init.py")
KEPT = 32 << 20
"""Bytes of output that are kept for readers which come back."""
PIECE = 1 << 16
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP")
SYSTEM = (
    *("--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--ro-bind", "/etc/alternatives", "/etc/alternatives", "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"),
    *("--ro-bind", "/etc/passwd", "/etc/passwd", "--ro-bind", "/etc/group", "/etc/group"),
    *("--proc", "/proc", "--dev", "/dev", "--dir", "/root"),
    *("--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/var/tmp"),
)  # fmt: skip


class Output:
    """One output stream of a program, readable again from any offset that is still kept."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._turn = asyncio.Lock()
        self._kept = bytearray()
        self._start = 0

    async def read(self, offset: int) -> bytes:
        """Return what comes at an offset; nothing at the end."""
        if offset < self._start:
            raise LookupError(f"offset {offset} is not kept any more")
        async with self._turn:
            if offset >= self._start + len(self._kept):
                more = await self._reader.read(PIECE)
                self._kept += more
                if (excess := len(self._kept) - KEPT) > 0:
                    del self._kept[:excess]
                    self._start += excess
            return bytes(self._kept[offset - self._start :][: 4 * PIECE])


class Program:
    """One exec in a sandbox."""

    def __init__(self, stdin: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.outputs: list[Output] = []
        self.written = 0
        self._stdin: int | None = stdin
        self._turn = asyncio.Lock()
        os.set_blocking(stdin, False)

    async def write(self, offset: int, data: bytes, *, eof: bool) -> None:
        """Write what has not been written before, from an offset on."""
        async with self._turn:
            if offset > self.written:
                raise LookupError(f"wanted input from {self.written} on, found {offset}")
            rest = memoryview(data)[self.written - offset :]
            while rest and self._stdin is not None:
                taken = await self._some(rest)
                self.written += taken
                rest = rest[taken:]
            if eof:
                self.close()

    async def _some(self, data: memoryview) -> int:
        assert self._stdin is not None
        try:
            return os.write(self._stdin, data)
        except BrokenPipeError:
            self.close()
            return len(data)
        except BlockingIOError:
            await _writable(self._stdin)
            return 0

    def close(self) -> None:
        """Close its standard input."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


class Place:
    """One sandbox: a first process that starts programs on demand."""

    def __init__(self, name: str, *, network: bool, memory: int) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._programs: dict[str, Program] = {}
        self._removing: asyncio.Task[None] | None = None
        self.out_of_memory = False
        self._bound = Bound(name)
        with theirs:
            self._process = self._start(theirs.fileno(), network=network, memory=memory)
        asyncio.get_running_loop().add_reader(self._ours, self._hear)
        self.ended = asyncio.get_running_loop().create_future()

    def _start(self, control: int, *, network: bool, memory: int) -> subprocess.Popen[bytes]:
        flags = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", *([] if network else ["--unshare-net"])]
        capabilities = [word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}")]
        try:
            return subprocess.Popen(
                [
                    *self._bound.prefix,
                    *("bwrap", *flags, "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),
                    *(*capabilities, *SYSTEM, "--ro-bind", str(INIT), "/run/init.py", "--chdir", "/", "--"),
                    *("/usr/bin/python3", "-I", "-S", "/run/init.py", str(control), str(memory)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin"},
                pass_fds=[control],
            )
        except OSError:
            self._removing = self._bound.remove()
            raise

    def _hear(self) -> None:
        try:
            data = self._ours.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        said = json.loads(data)
        if said.get("oom"):
            self.out_of_memory = True
        elif said["id"] in self._programs:
            self._programs[said["id"]].ended.set_result(said["code"])

    async def start(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Program:
        """Start a program."""
        theirs, ours = os.pipe()
        program = Program(ours)
        ends = [theirs]
        for _ in range(2):
            read, write = os.pipe()
            reader = asyncio.StreamReader(limit=PIECE)
            protocol = asyncio.StreamReaderProtocol(reader)
            await asyncio.get_running_loop().connect_read_pipe(lambda p=protocol: p, os.fdopen(read, "rb", 0))
            program.outputs.append(Output(reader))
            ends.append(write)
        self._programs[name] = program
        order = {"id": name, "argv": list(argv), "env": dict(env), "cwd": cwd}
        socket.send_fds(self._ours, [json.dumps(order).encode()], ends)
        for fd in ends:
            os.close(fd)
        return program

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a program's session."""
        with contextlib.suppress(OSError):
            self._ours.send(json.dumps({"id": name, "signal": int(number)}).encode())

    def end(self) -> None:
        """Kill everything inside."""
        if self.ended.done():
            return
        asyncio.get_running_loop().remove_reader(self._ours)
        self._ours.close()
        self._kill()
        self._removing = self._bound.remove()
        for program in self._programs.values():
            program.close()
            if not program.ended.done():
                program.ended.set_result(-signal.SIGKILL)
        self.ended.set_result(None)

    async def wait_for_removal(self) -> None:
        """Wait until nothing is left of it, after its end."""
        if self._removing is not None:
            await self._removing

    def _kill(self) -> None:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii")
        first = [os.pidfd_open(int(pid)) for pid in children.split()]
        self._process.send_signal(signal.SIGKILL)
        for fd in first:
            # With the first process of a namespace all others have gone.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            select.select([fd], [], [], 5)
            os.close(fd)
        self._process.wait()


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_writer(fd, ready)
    try:
        await future
    finally:
        loop.remove_writer(fd)
