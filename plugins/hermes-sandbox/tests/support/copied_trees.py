"""What the tests of copies share: a tree with everything in it, a look at one, and a sender not to be trusted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_sandbox.agent.file_access.archive_format import (
    DATA,
    DIRECTORY,
    END,
    FILE,
    FILE_END,
    LEAVE,
    SYMLINK,
    entry_record,
)
from hermes_sandbox.agent.wire import PREFIX, PROTOCOL, decode_header, encode
from hermes_sandbox.protocol.bootstrap import agent_message
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.streams import AgentStream

OLD = 1_234_567_890_123_456_789


def make_tree(root: Path) -> None:
    """Make one of everything that can be copied."""
    (root / "empty" / "er").mkdir(parents=True)
    (root / "deep" / "er").mkdir(parents=True)
    (root / "plain").write_bytes(b"plain")
    (root / "nothing").touch()
    (root / "deep" / "er" / "big").write_bytes(os.urandom((1 << 20) + 17))
    for name in (b"new\nline", b"not\xffutf", b"-rf", b"with space", "ünïcødé ☃".encode()):
        (root / os.fsdecode(name)).write_bytes(name)
    (root / "run").write_text("#!/bin/sh\necho ran\n")
    (root / "run").chmod(0o750)
    (root / "closed").write_bytes(b"secret")
    (root / "closed").chmod(0o400)
    (root / "link").symlink_to("deep/er")
    (root / "dangling").symlink_to("/no/such\nplace")
    (root / "twin").hardlink_to(root / "plain")
    (root / "deep").chmod(0o2755)
    for path in (root / "plain", root / "deep" / "er", root / "empty"):
        os.utime(path, ns=(OLD, OLD))
    os.utime(root / "link", ns=(OLD, OLD), follow_symlinks=False)


def look(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return everything that a copy has to keep, by name."""
    seen = {}
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files, ""):
            path = Path(folder, name)
            info = path.lstat()
            content: object = None
            if stat.S_ISLNK(info.st_mode):
                content = str(path.readlink())
            elif stat.S_ISREG(info.st_mode):
                content = path.read_bytes()
            mode = 0 if stat.S_ISLNK(info.st_mode) else info.st_mode & ~0o6000
            seen[str(path.relative_to(root))] = (mode, info.st_mtime_ns, content)
    return seen


def litter(root: Path) -> list[Path]:
    """Return what a copy that was not finished has left."""
    return list(root.rglob(".hermes-*"))


def require_holes(folder: Path) -> None:
    """Skip where the file system keeps no holes: a large file of nothing would be written and copied in full there."""
    probe = folder / "holes"
    with probe.open("wb") as file:
        file.truncate(1 << 24)
        try:
            kept = os.lseek(file.fileno(), 0, os.SEEK_DATA) > 0
        except OSError as error:  # there are no data at all
            kept = error.errno == errno.ENXIO
        kept = kept and os.fstat(file.fileno()).st_blocks == 0
    probe.unlink()
    if not kept:
        pytest.skip(f"the file system of {folder} keeps no holes")


class Brake:
    """Lets one end of a copy take a few steps and holds it up before the next, so that it is in the middle until then.

    What is held up goes on after `release`, or after a minute.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: type, step: str, *, free: int) -> None:
        self.holds = threading.Event()
        self._released = threading.Event()
        self._free = free
        original = getattr(end, step)

        def brake(*arguments: Any) -> Any:
            if self._free == 0:
                self.holds.set()
                self._released.wait(60)
            else:
                self._free -= 1
            return original(*arguments)

        monkeypatch.setattr(end, step, brake)

    def release(self) -> None:
        """Let it go on to its end."""
        self._released.set()


def is_writing(pid: int, root: Path) -> bool:
    """Tell whether a process has a file below a directory open."""
    for fd in _descriptors(pid):
        # One of those that are listed is what they were listed with, and closed again.
        with contextlib.suppress(FileNotFoundError):
            if str(fd.readlink()).startswith(f"{root}/"):
                return True
    return False


def _descriptors(pid: int) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(Path(f"/proc/{pid}/fd").iterdir())
    return []


def tree_records(*entries: bytes) -> bytes:
    """Return a directory with these records in it."""
    return b"".join((entry_record(DIRECTORY, mode=0o755), *entries, entry_record(LEAVE), entry_record(END)))


def file_records(name: bytes, content: bytes = b"", *, mode: int = 0o644, size: int | None = None) -> bytes:
    """Return a whole file; with another size than its content's, if asked for."""
    begin = entry_record(FILE, name, mode=mode, number=len(content) if size is None else size)
    data = entry_record(DATA, number=len(content)) + content if content else b""
    return begin + data + entry_record(FILE_END)


def link_record(name: bytes, target: bytes) -> bytes:
    """Return a symlink."""
    return entry_record(SYMLINK, name, target)


class Peer:
    """Speaks the agent's protocol and answers every copy with what a test wants to be sent.

    It never ends a copy without `end`; `asked` counts the pieces that it was asked for, `given` the bytes it was sent.
    """

    def __init__(self, records: bytes = b"", *, single: bool = False, end: bool = True, sha256: str | None = None):
        self.records = records
        self.single = single
        self.end = end
        self.sha256 = hashlib.sha256(records).hexdigest() if sha256 is None else sha256
        self.asked = 0
        self.given = 0
        self.silent_to: frozenset[str] = frozenset()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(agent_message()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, size = PREFIX.unpack(await reader.readexactly(PREFIX.size))
                header = decode_header(await reader.readexactly(head))
                body = await reader.readexactly(size)
                self.given += len(body)
                if header["op"] not in self.silent_to:
                    values, content = self.answer(header)
                    writer.write(encode({"id": header["id"], "ok": values}, content))
        writer.close()

    def answer(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if header["op"] == "hello":
            return {"protocol": PROTOCOL, "pid": 1, "python": "3", "uid": 0, "can_setuid": False}, b""
        if header["op"] == "pack":
            return {"single": self.single}, b""
        if header["op"] == "take":
            self.asked += 1
            sent, self.records = self.records, b""
            return {"end": self.end, "sha256": self.sha256 if self.end else None}, sent
        return {}, b""


@contextlib.asynccontextmanager
async def connect_peer(peer: Peer):
    """Connect a client to a peer."""
    ours, theirs = socket.socketpair()
    serving = asyncio.ensure_future(peer.serve(*await asyncio.open_connection(sock=theirs)))
    client = await AgentClient.connect(AgentStream(*await asyncio.open_connection(sock=ours)), {}, timeout=60)
    try:
        yield client
    finally:
        await client.aclose()
        await serving
