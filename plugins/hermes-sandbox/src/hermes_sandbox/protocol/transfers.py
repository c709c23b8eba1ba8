"""The caller's side of copies: files and trees between this machine and a sandbox, in constant memory.

Pieces are requested one after another, a few at a time, so that the slower side sets the pace and other
requests run in between. Files are read and written in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import Transfer
from hermes_sandbox.agent.file_access.packing import Packer
from hermes_sandbox.agent.file_access.unpacking import Unpacker
from hermes_sandbox.agent.wire import FrameError
from hermes_sandbox.protocol.archives import TarWriter

_WINDOW: Final = 4
"""Pieces in flight: requested or sent, and not answered."""
_OMISSIONS: Final = 100_000
"""Entries that a copy may omit."""
_OMITTED_SIZE: Final = 16 << 20
"""Characters of their paths and reasons."""
_ENTRY_SIZE: Final = 4096
"""Bytes that an entry counts besides its content."""
T = TypeVar("T")


_DROP: Final = 60.0
"""Seconds in which the sandbox must end a copy."""


class Requests(Protocol):
    """The methods needed of a slot: requests that are answered in order."""

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, deadline: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer."""
        ...


class _Omissions(list[tuple[str, str]]):
    """The omissions of a copy. Bounded: they are held in memory, and the sandbox decides how many there are."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._size = 0

    def append(self, omission: tuple[str, str], /) -> None:
        """Add an omission; raises `BackendError` if there are too many."""
        super().append(omission)
        self._size += sum(map(len, omission))
        if len(self) > _OMISSIONS or self._size > _OMITTED_SIZE:
            most = f"{_OMISSIONS}" if len(self) > _OMISSIONS else f"{_OMITTED_SIZE >> 20} MiB of"
            raise BackendError(f"more than {most} entries of {self._path} cannot be copied", hint="copy less at a time")


class _Copy:
    """One copy in progress at an agent."""

    def __init__(self, agent: Requests, path: str) -> None:
        self.path = path
        self._agent = agent
        self._name = os.urandom(8).hex()
        self._waiting: deque[asyncio.Task[tuple[dict[str, Any], bytes]]] = deque()

    async def ask(
        self, op: str, body: bytes = b"", *, deadline: float | None = None, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request about it; errors name the path as the caller did."""
        try:
            return await self._agent.request({"op": op, "copy": self._name, **fields}, body, deadline=deadline)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    async def prepare(self, **fields: Any) -> bool:
        """Prepare it in the sandbox; returns whether it is a single file."""
        answer, _ = await self.ask("pack", path=self.path, **fields)
        return answer.get("single") is True

    async def pieces(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """Yield the pieces, each with the hash of the whole, which is known only with the last piece."""
        while True:
            while len(self._waiting) < _WINDOW:
                self._waiting.append(asyncio.ensure_future(self.ask("take")))
            answer, piece = await self._waiting.popleft()
            yield str(answer.get("sha256")), piece
            if answer.get("end") is True:
                return

    async def give(self, piece: bytes) -> None:
        """Send a piece, once there is room for it."""
        if len(self._waiting) == _WINDOW:
            await self._waiting.popleft()
        self._waiting.append(asyncio.ensure_future(self.ask("give", piece)))

    async def flush(self) -> None:
        """Wait until all sent pieces are confirmed."""
        while self._waiting:
            await self._waiting.popleft()

    async def drop(self) -> None:
        """End it in the sandbox, whatever its state."""
        for waiting in self._waiting:
            waiting.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        # This cannot be cancelled, so it must end by itself, whatever state the agent is in.
        with contextlib.suppress(SandboxLostError):
            await self.ask("drop", deadline=_DROP)


@contextlib.asynccontextmanager
async def _copy(agent: Requests, path: str, ends: Callable[[], None]) -> AsyncIterator[_Copy]:
    """Provide a copy that is ended on both sides in any case; `ends` closes this side."""
    copy = _Copy(agent, path)
    try:
        yield copy
    except FrameError as error:
        raise BackendError(f"the copy of {path} is corrupt: {error}") from error
    finally:
        await run_uncancelled(_end(copy, ends))


async def _end(copy: _Copy, ends: Callable[[], None]) -> None:
    try:
        await copy.drop()
    finally:
        await asyncio.to_thread(ends)


def _apart(work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
    # Uncancelled, because a cancellation would close the files that the thread works on.
    return run_uncancelled(asyncio.to_thread(work, *arguments))


async def upload(agent: Requests, source: Path, path: str) -> Transfer:
    """Copy a file or a directory of this machine into the sandbox."""
    omitted: list[tuple[str, str]] = []
    packer = await asyncio.to_thread(lambda: Packer(source, follow=True, omitted=omitted))
    async with _copy(agent, path, packer.close) as copy:
        await copy.ask("unpack", path=path, single=packer.single)
        while not packer.ended:
            await copy.give(await _apart(packer.take))
        await copy.flush()
        sha256 = packer.digest.hexdigest()
        await copy.ask("finish", sha256=sha256)
    return Transfer(files=packer.files, bytes=packer.bytes, sha256=sha256, omitted=tuple(omitted))


class _BoundedUnpacker(Unpacker):
    """Writes at most `max_bytes`: the sandbox decides how much it sends."""

    def __init__(self, place: Path, path: str, max_bytes: int | None) -> None:
        super().__init__(place)
        self._source = path
        self._max_bytes = max_bytes
        self._taken = 0

    def directory(self, name: str, mode: int, mtime: int) -> None:
        """Make a directory, within the limit."""
        self._take(_ENTRY_SIZE)
        super().directory(name, mode, mtime)

    def file(self, name: str, mode: int, mtime: int, size: int) -> None:
        """Begin a file, within the limit."""
        self._take(_ENTRY_SIZE)
        super().file(name, mode, mtime, size)

    def data(self, piece: memoryview) -> None:
        """Write bytes, within the limit."""
        self._take(len(piece))
        super().data(piece)

    def symlink(self, name: str, target: str, mtime: int) -> None:
        """Make a symlink, within the limit."""
        self._take(_ENTRY_SIZE)
        super().symlink(name, target, mtime)

    def _take(self, size: int) -> None:
        self._taken += size
        if self._max_bytes is not None and self._taken > self._max_bytes:
            raise OSError(errno.EFBIG, f"More than {self._max_bytes} bytes", self._source)


async def download(agent: Requests, path: str, target: Path, *, max_bytes: int | None = None) -> Transfer:
    """Copy a file or a directory out of the sandbox."""
    # A symlink at the end is not followed: an earlier download may have made it.
    place = Path(os.path.abspath(target))  # noqa: PTH100, ASYNC240 - resolve() would follow it
    unpacker = _BoundedUnpacker(place, path, max_bytes)
    unpacker.skipped = _Omissions(path)
    async with _copy(agent, path, unpacker.abort) as copy:
        single = await copy.prepare(follow=True, max_bytes=None, max_entries=None)
        await asyncio.to_thread(_require_room, place, single=single)
        unpacker.expect(single=single)
        async with contextlib.aclosing(copy.pieces()) as pieces:
            async for sha256, piece in pieces:  # noqa: B007 - the last one is used
                await _apart(unpacker.add, piece)
        done = await _apart(unpacker.commit, sha256)
    return Transfer(files=done[0], bytes=done[1], sha256=sha256, omitted=tuple(unpacker.skipped))


async def archive(
    agent: Requests, paths: Sequence[str], target: Path, *, max_bytes: int | None, max_entries: int | None
) -> Transfer:
    """Write files and directories of the sandbox to an archive; entries beyond a limit are listed one by one."""
    if min(max_bytes or 0, max_entries or 0) < 0:
        raise ValueError(f"max_bytes and max_entries: expected 0 or more, got {max_bytes} and {max_entries}")
    writer = TarWriter(Path(target), max_bytes=max_bytes, max_entries=max_entries)
    writer.omissions = _Omissions(", ".join(paths)[:1000])
    try:
        await _apart(writer.open)
        for path in dict.fromkeys(paths):
            await _add(agent, path, writer)
        sha256 = await _apart(writer.commit)
    finally:
        await _apart(writer.abort)
    omitted = tuple(writer.omissions)
    return Transfer(files=writer.files, bytes=writer.bytes, sha256=sha256, omitted=omitted)


async def _add(agent: Requests, path: str, writer: TarWriter) -> None:
    max_bytes, max_entries = writer.allowance()
    async with _copy(agent, path, lambda: None) as copy:
        try:
            single = await copy.prepare(follow=False, max_bytes=max_bytes, max_entries=max_entries)
        except OSError as error:
            writer.omissions.append((path, error.strerror or str(error)))
            return
        writer.begin(path, single=single)
        async with contextlib.aclosing(copy.pieces()) as pieces:
            async for sha256, piece in pieces:  # noqa: B007 - the last one is used
                await _apart(writer.add, piece)
        writer.end(sha256)


def _require_room(place: Path, *, single: bool) -> None:
    """Raise early if the last step of a copy would fail."""
    if single and place.is_dir() and not place.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    if not single and place.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "A symlink is not followed; name the directory itself", str(place))
