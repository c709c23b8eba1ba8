"""Cleans up after the slots of a shared host, in a separate process so that no request waits."""

from __future__ import annotations

import os
import resource

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.sweeping.ipc_objects import remove_ipc_objects
from hermes_sandbox.agent.sweeping.removal import Removal, act_as
from hermes_sandbox.agent.sweeping.writable_places import writable_places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

_SECONDS = 20
"""Seconds after which files that are not removed count as left."""
_TOLD = 400
"""Bytes of the report about what is left."""


class Sweeper:
    """Removes what the users of closed slots own: files in world-writable directories, and System V objects.

    The fields come with `open`: `tops`, the directories below which slots can have written, and `kept`, the
    paths of volumes, which outlive the host.
    """

    def __init__(self, loop: Any) -> None:
        self.left: str | None = None
        """What could not be removed so far; if anything, the host should take no new slot."""
        self._loop = loop
        self._users: set[int] = set()
        self._dead: set[int] = set()
        self._places: bytes | None = None
        """The world-writable directories, each path ended by a zero byte; None until they were searched."""
        self._running = False
        self._waiting: list[Callable[[], None]] = []

    def expect(self, uid: int) -> None:
        """Add the user of a new slot, before anything runs as it."""
        self._users.add(uid)
        if not os.path.ismount("/dev/mqueue"):
            # POSIX queues without a directory could not be found again.
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))

    def sweep(self, uid: int, request: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Remove what this user, whose processes have ended, owns, and what earlier users have hidden."""
        self._dead.add(uid)
        self._waiting.append(then)
        if not self._running:
            self._sweep_all(request)

    def _sweep_all(self, request: Mapping[str, Any]) -> None:
        # One process for all users that have ended by now: a host may have no room for one per slot.
        thens, self._waiting, self._running = self._waiting, [], True
        report, found = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("left", "places"))

        def read_report(status: int) -> None:
            said = os.pread(report, _TOLD, 0).decode(errors="replace")
            if status == 0 and self._places is None:
                self._places = os.pread(found, os.fstat(found).st_size, 0)
            elif status != 0:
                self.left = said or f"unknown files (the sweep ended with status {status})"
            for fd in (report, found):
                os.close(fd)
            self._running = False
            if self._waiting:
                self._sweep_all(request)
            for then in thens:
                then()

        try:
            self._loop.on_exit(self._start(request, report, found), read_report)
        except OSError as error:
            os.pwrite(report, f"no process can be started to sweep: {error.strerror}".encode(), 0)
            read_report(-1)

    def _start(self, request: Mapping[str, Any], report: int, found: int) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(self._work(request, report, found))
            finally:
                os._exit(1)
        return pid

    def _work(self, request: Mapping[str, Any], report: int, found: int) -> int:
        _let_go_of_the_agent()
        try:
            places = self._places
            if places is None:
                known = writable_places(request["tops"], request["kept"], self._users, act_as)
                places = b"".join(os.fsencode(path) + b"\0" for path in known)
                os.write(found, places)
            left = _remove(self._dead, self._users, places)
        except OSError as error:
            left = [f"the directories that everybody may write to: {error}"]
        # Names may hold any characters; they end up in one line of a log.
        os.write(report, ascii("; ".join(left[:8]))[1:-1].encode())
        return 1 if left else 0


def _remove(dead: Collection[int], users: Collection[int], places: bytes) -> list[str]:
    removal = Removal(dead, set(users) - set(dead))
    for place in places.split(b"\0")[:-1]:
        removal.search(os.fsdecode(place))
    return removal.left + remove_ipc_objects(dead)


def _let_go_of_the_agent() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(_SECONDS)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in range(3):
        os.dup2(null, fd)
    os.chdir("/")
    with suppress(PermissionError):
        os.setgroups([])
