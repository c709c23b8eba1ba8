"""One slot of an agent: a tenant with its own workspace, session and user."""

from __future__ import annotations

import os
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, contextmanager, signal, suppress
from hermes_sandbox.agent.launch import Identity, Plan, kill_as, launch, uids
from hermes_sandbox.agent.process_bound import ProcessBound
from hermes_sandbox.agent.processes import (
    MARKER,
    Patience,
    Process,
    read_marker,
    read_table,
    send,
    stop_and_kill,
    with_descendants,
)
from hermes_sandbox.agent.wire import encode_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

USUAL_UMASK = 0o022
"""The agent's umask, unless it acts for a slot with another one."""
_NO_CHANGE = suppress()  # of nothing
_ROUND = 0.002
_LAST_SECONDS = 5.0
"""Seconds without progress after which processes count as unkillable."""


class Slot:
    """A workspace, a session and a user; every request names a slot.

    Number 0 is the agent itself, for requests without a slot.
    """

    def __init__(self, loop: Any, number: int, marker: str, request: Mapping[str, Any]) -> None:
        self.loop = loop
        self.number = number
        self.marker = f"{marker}.{number}"
        self.workspace: str = request.get("workspace", "/")
        self.bash: str = request.get("bash", "/bin/bash")
        self.environment: dict[str, str] = request.get("env", {})
        self.kind: str = request.get("session", "robust")
        self.umask: int = request.get("umask", 0o022)
        self.own_directory: bool = request.get("own_directory", False)
        self.sweep: dict[str, Any] | None = request.get("sweep")
        """Where to search, when it is closed, for files of its user, which no other slot has; None for no search."""
        self.leftovers: set[str] = set()
        """Directories of its sessions that could not be deleted at once, because of files of commands."""
        self.lifetime: float | None = request.get("lifetime")
        self.identity: Identity | None = None
        self.bound: ProcessBound | None = None
        """The bound of its processes (`how` is "none: …" if there is none); None if the agent was not asked for one."""
        self.session: Any = None
        self.features: dict[str, Any] = {}
        """Objects of other modules for this slot: they have `close()`, and `busy()` if they can be at work."""
        self.alone = True
        """Whether no other slot shares the user, so that all its processes and files are this slot's."""
        self.requests = 0
        self.used = time.monotonic()
        uid = request.get("uid")
        if uid is not None:
            gid = uid if request.get("gid") is None else request["gid"]
            self.identity = Identity(uid, gid)

    def path(self, text: str) -> str:
        """Return a path, relative ones from the workspace, with its superfluous slashes and dots left out."""
        parts = (text if text.startswith("/") else f"{self.workspace}/{text}").split("/")
        return "/" + "/".join(part for part in parts if part not in {"", "."})

    def acting(self) -> AbstractContextManager[None]:
        """Act as the slot's user for files and signals, with its umask, within the block."""
        if self.umask == USUAL_UMASK and (self.identity is None or os.geteuid() == self.identity.uid):
            return _NO_CHANGE
        return self._acting()

    @contextmanager
    def _acting(self) -> Iterator[None]:
        before = os.umask(self.umask)
        try:
            if self.identity is None or os.geteuid() == self.identity.uid:
                yield
            else:
                with _effective(self.identity):
                    yield
        finally:
            os.umask(before)

    def spawn(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        wiring: Sequence[tuple[int, int]],
        *,
        marker: str | None = None,
        cwd: str | None = None,
        terminal: bool = False,
    ) -> int:
        """Start a process of the slot, with its user and umask, in a new session; returns its id.

        Args:
            argv: The program's absolute path and its arguments.
            environment: All of its variables; the mark is added.
            wiring: Descriptors of the agent, and the numbers they have in the process.
            marker: The mark of the process; the slot's if None.
            cwd: Its directory; the agent's current one if None.
            terminal: Whether its standard input is a terminal, which becomes its controlling one.
        """
        variables = {**environment, MARKER: self.marker if marker is None else marker}
        limit = None if self.bound is None else self.bound.number_now(self._count_own)
        plan = Plan(argv, variables, wiring, self.identity, self.umask, terminal, limit)
        if cwd is None:
            return self._launch(plan)
        try:
            with self.acting():
                os.chdir(self.path(cwd))
            return self._launch(plan)
        finally:
            os.chdir("/")

    def _launch(self, plan: Plan) -> int:
        if self.bound is None:
            return launch(plan)
        pid = 0
        try:
            with self.bound.enter():
                pid = launch(plan)
        except OSError:
            if pid:
                send([pid], signal.SIGKILL)
            raise
        return pid

    def _count_own(self) -> int:
        table = read_table()
        return sum(table[pid].threads for pid in self.members() if pid in table)

    def owns(self, orphan: Process) -> bool:
        """Tell whether a process without a mark is this slot's, as far as that can be known."""
        if self.identity is not None:
            return uids([orphan.pid]).get(orphan.pid) == self.identity.uid
        if self.alone:
            return True
        with suppress(OSError):
            place = os.readlink(f"/proc/{orphan.pid}/cwd")
            return f"{place}/".startswith(self.path("").rstrip("/") + "/")
        return False

    def members(self) -> set[int]:
        """Return every living process of the slot: those of its user, or those with its mark."""
        table = read_table()
        if self.identity is not None:
            uid = self.identity.uid
            return {pid for pid, owner in uids(table).items() if owner == uid}
        agent = os.getpid()
        below = with_descendants(table, [agent]) - {agent}
        mine = {pid for pid in below if self._is_mine(table[pid], agent)}
        return with_descendants(table, mine)

    def _is_mine(self, process: Process, agent: int) -> bool:
        marker = read_marker(process.pid)
        if marker is None:
            return process.parent == agent and self.owns(process)
        return marker == self.marker or marker.startswith(self.marker + ".")

    def kill_all(self, then: Callable[[bool], None]) -> None:
        """Kill every process of the slot; call back with True when all are gone, False if some cannot be killed."""
        if self.bound is not None:
            self.bound.forbid()
        self._kill_round(Patience(_LAST_SECONDS), then)

    def _kill_round(self, patience: Patience, then: Callable[[bool], None]) -> None:
        if self.identity is not None:
            # If no process can be started any more, they are stopped one by one below.
            with suppress(OSError):
                kill_as(self.identity)
        group = None if self.bound is None else self.bound.group
        if group is not None:
            # The group can start no more, and its list is cheap however many others run on the machine. A root
            # process that has left it ends with the agent.
            killed = group.kill()
        else:
            with self.acting():
                killed = stop_and_kill(self.members)
        if not killed or patience.is_over(len(killed)):
            # Dead processes count until they are reaped, and the next command needs room.
            self.loop.collect()
            then(not killed)
        else:
            self.loop.after(_ROUND, lambda: self._kill_round(patience, then))

    def unbind(self) -> OSError | None:
        """Remove its bound, after its processes have ended; returns the error, if any."""
        bound, self.bound = self.bound, None
        try:
            if bound is not None:
                bound.remove()
        except OSError as error:
            return error
        return None

    def tell(self, event: str, values: Mapping[str, Any], body: bytes = b"") -> None:
        """Send the client an unsolicited frame."""
        header = {"id": 0, "event": event, "slot": self.number, **values}
        self.loop.send(encode_head(header, len(body)), body)

    def busy(self) -> bool:
        """Tell whether it is working on a request."""
        return self.requests > 0 or any(feature.busy() for feature in self.features.values() if _can_be_busy(feature))

    def restart(self) -> None:
        """Close the session and the records of its processes; the processes themselves are killed separately."""
        features, self.features = self.features, {}
        for feature in features.values():
            feature.close()
        if self.session is not None:
            with self.acting():
                self.session.forget()


def _can_be_busy(feature: Any) -> bool:
    return hasattr(feature, "busy")


@contextmanager
def _effective(identity: Identity) -> Iterator[None]:
    # Only the effective ids: with the real ones, the slot's processes could signal the agent meanwhile.
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(identity.gid)
    try:
        os.seteuid(identity.uid)
        try:
            yield
        finally:
            os.seteuid(0)
    finally:
        os.setegid(0)
        os.setgroups(groups)
