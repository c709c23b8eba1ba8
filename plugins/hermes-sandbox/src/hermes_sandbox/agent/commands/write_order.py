"""The order of writes to several pipes, as the kernel tells it.

Two pipes that are read after the fact do not say which was written first. A pipe in asynchronous mode, however, sends
its reader a signal for each write before the write returns; a real-time signal is queued, and names its pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

_F_SETSIG = 10
_F_SETPIPE_SZ = 1031
_F_GETPIPE_SZ = 1032
_SPLICE_F_NONBLOCK = 2
_INFO = struct.Struct("=I16xi104x")
"""What signalfd tells: the signal and, after 16 bytes that do not matter here, the descriptor."""
_INFOS = 256
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ALL = 1 << 30
_SLOTS = 16
"""Packets that a pipe holds, or fewer when the user has too many pipes."""
_ROOMY = 64
"""Packets that a command's pipe is to hold; the pipes of a user without privileges may have 16,384 in all."""
_WIDE = 128
BULK_LIMIT = _WIDE * _PAGE


def _prototype(name: str, result: type, *arguments: type) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(result, *arguments, use_errno=True)((name, ctypes.CDLL(None)))


class Listener:
    """Who reads some of the pipes: the rings that were heard for it, and whether some were lost."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self.heard = heard
        self.rings: list[int] = []
        self.lost = False

    def take(self) -> list[int]:
        """Return what rang since the last time, in order."""
        rings, self.rings = self.rings, []
        return rings


class Bell:
    """Rings once for each write to an attached pipe; raises OSError where the kernel does not play along."""

    def __init__(self) -> None:
        number, pointer = ctypes.c_int, ctypes.c_void_p
        self._number = signal.SIGRTMIN + 9
        # SIGIO is what the kernel sends when the queue of signals is full. Blocked, neither can end this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {self._number, signal.SIGIO})
        mask = (1 << (self._number - 1) | 1 << (signal.SIGIO - 1)).to_bytes(8, sys.byteorder)
        signalfd = _prototype("signalfd", number, number, ctypes.c_char_p, number)
        self._splice = _prototype(
            "splice", ctypes.c_ssize_t, number, pointer, number, pointer, ctypes.c_size_t, ctypes.c_uint
        )
        self.fd = signalfd(-1, mask.ljust(128, b"\0"), os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "signalfd failed")
        self._shelf = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._shelf[1], _F_SETPIPE_SZ, BULK_LIMIT)
        self._shelf_is_wide = fcntl.fcntl(self._shelf[1], _F_GETPIPE_SZ) >= BULK_LIMIT
        self._file = os.memfd_create("hermes", os.MFD_CLOEXEC)
        # Open to all by default; a slot can have the agent read /proc/self/fd for it, and find others' output here.
        os.fchmod(self._file, 0)
        os.ftruncate(self._file, BULK_LIMIT)
        self._view = memoryview(mmap.mmap(self._file, BULK_LIMIT, prot=mmap.PROT_READ))
        self._listeners: dict[int, Listener] = {}
        self._due: dict[int, Listener] = {}
        self._delivering = False
        self._loop: Any = None
        try:
            self._try_out()
        except OSError:
            for fd in (self.fd, *self._shelf, self._file):
                os.close(fd)
            raise

    def _try_out(self) -> None:
        if fcntl.fcntl(self._shelf[1], _F_GETPIPE_SZ) < _SLOTS * _PAGE:
            raise OSError(errno.EMFILE, "the user has too many pipes")
        pair = self.pipe()
        try:
            self.attach(pair[0])
            os.write(pair[1], b"1")
            os.write(pair[1], b"2")
            found: list[Any] = [self._rings(), self.packets(self.take(pair[0]))]
            os.write(pair[1], b"3")
            os.write(pair[1], b"4")
            found += [self._rings(), self.bulk(self.take(pair[0]))]
        finally:
            for fd in reversed(pair):
                os.close(fd)
        # That the last writer has gone must ring too; the reader, closed after it, may not see another one.
        rest = self._rings()
        twice = ([pair[0]] * 2, False)
        if found != [twice, [b"1", b"2"], twice, b"34"] or rest != ([pair[0]], False):
            raise OSError(errno.ENOSYS, "the order of writes cannot be told here")

    def pipe(self) -> tuple[int, int]:
        """Return a pipe that keeps writes apart: one packet each, or several full pages and a rest."""
        pair = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
        # A write that has to wait rings before it is made, too, and nothing tells that ring from the next write's: the
        # order of what follows can be wrong until both pipes have been read empty. So writers should seldom wait.
        self.widen(pair[0], _ROOMY)
        return pair

    def attach(self, fd: int) -> None:
        """Ring for each write to the pipe with this reading end."""
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, _F_SETSIG, self._number)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def widen(self, fd: int, packets: int = _WIDE) -> None:
        """Make room for more packets, if the user may have so large a pipe and all of it can be taken at once."""
        if self._shelf_is_wide:
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, _F_SETPIPE_SZ, packets * _PAGE)

    def detach(self, fd: int) -> None:
        """Ring for it no more."""
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)

    def serve(self, loop: Any) -> None:
        """Call listeners back from now on."""
        self._loop = loop
        loop.watch(self.fd, lambda _fd: self._deliver())

    def listen(self, listener: Listener, fds: Iterable[int]) -> None:
        """Ring for these pipes, on behalf of one listener."""
        # The numbers of descriptors come again; a ring of a pipe that was closed must not count for this one.
        self.gather()
        for fd in fds:
            self._listeners[fd] = listener
            self.attach(fd)

    def leave(self, fds: Iterable[int]) -> None:
        """Ring for these pipes no more; what is left of them counts for nobody."""
        self.gather()
        self.drop(fds)

    def drop(self, fds: Iterable[int]) -> None:
        """Do the same for pipes that cannot ring any more, and whose rings have been gathered since."""
        for fd in fds:
            del self._listeners[fd]

    def gather(self, caller: Listener | None = None) -> None:
        """Give every listener the rings of its pipes; all but the caller are called back."""
        rung, lost = self._rings()
        concerned = [self._listeners[fd] for fd in rung if fd in self._listeners]
        for fd in rung:
            if fd in self._listeners:
                self._listeners[fd].rings.append(fd)
        if lost:
            concerned = list(self._listeners.values())
            for listener in concerned:
                listener.lost = True
        self._due.update((id(listener), listener) for listener in concerned if listener is not caller)
        if self._due and not self._delivering:
            self._delivering = True
            self._loop.after(0.0, self._deliver)

    def _deliver(self) -> None:
        self._delivering = True
        self.gather()
        while self._due:
            self._due.pop(next(iter(self._due))).heard()
        self._delivering = False

    def _rings(self) -> tuple[list[int], bool]:
        """Return which pipes rang, in order and as often as they did, and whether some rings were lost."""
        rung = []
        lost = False
        more = True
        while more:
            try:
                data = os.read(self.fd, _INFOS * _INFO.size)
            except BlockingIOError:
                break
            for number, fd in _INFO.iter_unpack(data):
                if number == self._number:
                    rung.append(fd)
                else:
                    lost = True
            # A writer that never blocks can ring without end.
            more = len(data) == _INFOS * _INFO.size and len(rung) < 64 * _INFOS
        return rung, lost

    def take(self, fd: int) -> int:
        """Move what is in a pipe to the shelf and return its size: 0 if the pipe has ended, -1 if nothing is there.

        All is taken at one moment. A writer that finds a pipe full rings although it has written nothing yet; were
        packets taken one by one, those that it writes meanwhile could not be told from those before this ring.
        """
        while True:
            size = self._splice(fd, None, self._shelf[1], None, _ALL, _SPLICE_F_NONBLOCK)
            if size >= 0:
                return size
            if ctypes.get_errno() == errno.EAGAIN:
                return -1
            if ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "splice failed")

    def packets(self, size: int) -> list[bytes]:
        """Return what is on the shelf, write by write."""
        packets = []
        while size:
            # Asking for all that is there, because what does not fit of a packet would be lost.
            packets.append(os.read(self._shelf[0], size))
            size -= len(packets[-1])
        return packets

    def bulk(self, size: int) -> memoryview:
        """Return what is on the shelf in one piece, valid until the next call.

        A file, unlike a pipe, takes many packets in one call, and a mapped one need not be read.
        """
        at = ctypes.c_longlong(0)
        while at.value < size:
            moved = self._splice(self._shelf[0], None, self._file, ctypes.byref(at), size - at.value, 0)
            if moved <= 0 and ctypes.get_errno() != errno.EINTR:
                # The session's limit to the size of files holds for this one too.
                return memoryview(bytes(self._view[: at.value]) + b"".join(self.packets(size - at.value)))
        return self._view[:size]


def hang_bell() -> Bell | None:
    """Return a bell, or None where there cannot be one and the order of writes is that of reading."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        return Bell()
    return None


def first_write(packets: list[bytes], rings: int) -> int:
    """Return how many of the packets belong to the first write, if `rings` writes are waiting.

    A packet that is not a full page ends a write. Writes of nothing but full pages leave it open where they end: then
    they are taken for blocks of one size, a power of two, because that is what buffering programs write.
    """
    if len(packets[0]) != _PAGE:
        return 1
    ends = [place for place, packet in enumerate(packets, 1) if len(packet) != _PAGE]
    run = ends[0] if ends else len(packets)
    writes = rings - len(ends) + (len(packets[-1]) != _PAGE)
    if writes < 2:
        return run
    size = 1
    while size * writes < run:
        size *= 2
    return size if size * (writes - 1) < run else max(1, run - writes + 1)
