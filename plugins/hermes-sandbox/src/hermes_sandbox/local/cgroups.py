"""Control groups: limits for everything that a sandbox starts, and the most reliable list of its processes.

Version 2 is one tree with every controller, version 1 a tree for each; a machine can have both at once. Whether a group
can really be made, limited and filled depends on the mounts, the permissions and, in version 2, on other members of the
group above. So nothing is concluded from what exists: each step is tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.agent.pids_group import (
    GROUP_PREFIX,
    PROBE_PREFIX,
    GroupPlace,
    candidates,
    enable_controller,
    kill_members,
    remove_tree,
    with_subgroups,
    words,
    write_existing,
)
from hermes_sandbox.agent.processes import Patience
from hermes_sandbox.protocol.fd_limits import is_exhaustion, suppress_exhausted

PREFIX: Final = GROUP_PREFIX
_PROBE_TAKES: Final = 60.0
_ROOT: Final = "/sys/fs/cgroup"
Controller = Literal["memory", "pids", "cpu"]
CONTROLLERS: Final[tuple[Controller, ...]] = ("memory", "pids", "cpu")
_SWAP: Final = frozenset({"memory.memsw.limit_in_bytes", "memory.swap.max"})
"""Files that are missing on a kernel without accounting of swap."""
_LIMIT_FILES: Final[Mapping[tuple[int, Controller], str]] = {
    (1, "memory"): "memory.limit_in_bytes",
    (1, "pids"): "pids.max",
    (1, "cpu"): "cpu.cfs_quota_us",
    (2, "memory"): "memory.max",
    (2, "pids"): "pids.max",
    (2, "cpu"): "cpu.max",
}
_SUBJECT: Final = """
import errno, os, sys
sys.stdin.readline()
try:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print("forked")
except OSError as error:
    print("refused" if error.errno == errno.EAGAIN else error)
"""
"""A test program: it waits until it is in a group, and reports whether it can start a process there."""
_PATIENCE: Final = 30.0
_KILLING: Final = 2.0
"""Seconds without progress after which the processes of a group count as unkillable."""


class ControlGroups:
    """The control groups that this process can make; tried once per process, at the first question.

    `chosen` is a directory of a version 2 tree to make groups in, for callers to whom one was delegated.
    """

    def __init__(self, chosen: Path | None = None) -> None:
        self._chosen = chosen

    def place(self, controller: Controller) -> GroupPlace | None:
        """Return where groups with this controller can be made, None if nowhere; see `reason`."""
        return _find_place(self._chosen, controller)[0]

    def reason(self, controller: Controller) -> str:
        """Return why no group with this controller can be made."""
        return _find_place(self._chosen, controller)[1]

    def paths(self, sandbox_id: str, controllers: Iterable[Controller]) -> list[Path]:
        """Return the directories of a sandbox's group; only one if the controllers share a tree."""
        places = (self.place(controller) for controller in controllers)
        found = (place.directory / f"{PREFIX}{sandbox_id}" for place in places if place is not None)
        return list(dict.fromkeys(found))

    def discard_probes(self) -> None:
        """Remove empty groups left by processes that were killed while trying."""
        for controller in CONTROLLERS:
            place = self.place(controller)
            for group in place.directory.glob(f"{PROBE_PREFIX}*") if place else ():
                with contextlib.suppress(OSError):  # in use, or gone
                    if time.time() - group.stat().st_mtime > _PROBE_TAKES:
                        group.rmdir()


@cache
def _find_place(chosen: Path | None, controller: Controller) -> tuple[GroupPlace | None, str]:
    """Return the first place where a group can be made, or None and why not; cached for the process."""
    reason = "no control group filesystem is mounted"
    for place in _candidates(controller, chosen):
        try:
            with enable_controller(place, controller):
                _try(place, controller)
        except OSError as error:
            if is_exhaustion(error):
                raise
            reason = str(error)
        else:
            return place, ""
    return None, reason


def _try(place: GroupPlace, controller: Controller) -> None:
    group = place.directory / f"{PROBE_PREFIX}{uuid.uuid4().hex[:12]}"
    group.mkdir()
    try:
        limit = group / _LIMIT_FILES[place.version, controller]
        if not limit.exists():
            raise FileNotFoundError(errno.ENOENT, "the controller is not enabled", str(limit))
        if controller == "pids":
            limit.write_text("1", encoding="ascii")
        said = _said_inside(group)
        if controller == "pids" and said != "refused":
            raise PermissionError(errno.EPERM, f"a limit of processes has no effect there ({said})", str(limit))
    finally:
        remove_tree(group)


def _said_inside(group: Path) -> str:
    argv = [sys.executable, "-I", "-S", "-c", _SUBJECT]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as subject:
        try:
            (group / "cgroup.procs").write_text(str(subject.pid), encoding="ascii")
            return subject.communicate("\n", timeout=_PATIENCE)[0].strip()
        except OSError:
            subject.kill()
            raise
        except subprocess.TimeoutExpired as error:
            subject.kill()
            raise TimeoutError(errno.ETIMEDOUT, "a process in it does not answer", str(group)) from error


def _candidates(controller: Controller, chosen: Path | None) -> Iterator[GroupPlace]:
    if chosen is None:
        yield from candidates(controller)
    else:
        yield GroupPlace(2 if (chosen / "cgroup.controllers").exists() else 1, chosen)


async def remove_group(sandbox_id: str) -> None:
    """Kill the processes in the group that an agent on this machine made for a sandbox, and remove the group.

    A missing group is not an error. The whole tree is searched: the caller need not be
    in the same group as the process that made it.

    Raises:
        BackendError: It cannot be emptied.
    """
    paths = await asyncio.to_thread(_find_groups, f"{PREFIX}{sandbox_id}")
    if paths:
        await Group(paths).remove()


def _find_groups(name: str) -> list[Path]:
    return [Path(top, name) for top, names, _ in os.walk(_ROOT) if name in names]


class Group:
    """The group of one sandbox: a directory in each tree that is used."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._forbidden: dict[Path, str] = {}

    def create(self, settings: Mapping[Path, Mapping[str, str]]) -> None:
        """Make the group and write its files; raises OSError, and then leaves nothing."""
        try:
            for directory in self._directories:
                directory.mkdir()
                for name, value in settings.get(directory, {}).items():
                    if name not in _SWAP or (directory / name).exists():
                        (directory / name).write_text(value, encoding="ascii")
        except OSError:
            self._remove()
            raise

    def add(self, pid: int) -> None:
        """Put a process into it; everything that the process starts from now on is in it too."""
        for directory in self._directories:
            (directory / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def open_lists(self) -> list[int]:
        """Open its lists of processes for writing: a process that writes "0" to each of them puts itself into it."""
        with contextlib.ExitStack() as unless_opened:
            opened = []
            for directory in self._directories:
                opened.append(os.open(directory / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
                unless_opened.callback(os.close, opened[-1])
            unless_opened.pop_all()
        return opened

    def members(self) -> set[int]:
        """Return the processes in it, never the calling one."""
        lines = (line for path in self._trees() for line in words(path / "cgroup.procs"))
        # 0 means a process of a namespace that is not visible here.
        return {int(line) for line in lines} - {0, os.getpid()}

    def forbid(self) -> None:
        """Keep its processes from starting any more, until `end` has ended them."""
        with suppress_exhausted():
            for directory in self._directories:
                limit = directory / "pids.max"
                if limit not in self._forbidden and (value := words(limit)):
                    write_existing(limit, "0")
                    self._forbidden[limit] = value[0]

    def kill_but(self, pid: int) -> None:
        """Kill all its processes except one."""
        with suppress_exhausted():
            for member in self.members() - {pid}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member, signal.SIGKILL)

    async def end(self) -> bool:
        """Kill its processes, however fast they fork; True if none is left. The group can be used again."""
        patience = Patience(_KILLING)
        try:
            while True:
                self.forbid()
                # A round that could not read the list, for lack of descriptors, made no progress.
                left = 1 << 30
                with suppress_exhausted():
                    members = self.members()
                    left = len(members)
                    if not members:
                        return True
                    for directory in self._directories:
                        kill_members(directory, members)
                if patience.is_over(left):
                    return False
                await asyncio.sleep(0.01)
        finally:
            forbidden, self._forbidden = self._forbidden, {}
            with suppress_exhausted():
                for path, value in forbidden.items():
                    write_existing(path, value)

    async def remove(self) -> None:
        """Kill its processes and remove it; a missing group is not an error."""
        with contextlib.suppress(OSError):  # such as one with members, which are ended first
            self._remove()
            return
        for _ in range(100):
            if not await self.end():
                break
            with contextlib.suppress(OSError):  # a process that is still being torn down
                self._remove()
                return
            await asyncio.sleep(0.01)
        raise BackendError(f"the control group {self._directories[0]} cannot be emptied", hint="see its cgroup.procs")

    def _remove(self) -> None:
        for directory in reversed(list(self._trees())):
            directory.rmdir()

    def _trees(self) -> Iterator[Path]:
        for directory in self._directories:
            yield from with_subgroups(directory)
