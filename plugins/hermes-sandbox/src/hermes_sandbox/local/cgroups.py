"""Control groups: limits that hold for all a sandbox starts together, and the surest list of what that is.

Version 2 is one tree with every controller, version 1 a tree for each; a machine can have both at once. Whether a group
can really be made, limited and filled depends on the mounts, the permissions and, in version 2, on who else is in the
group above. So nothing is concluded from what exists: it is tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.protocol.fd_limits import exhausted

PREFIX: Final = "hermes-sandbox-"
_PROBE: Final = f"{PREFIX}probe-"
_PROBE_TAKES: Final = 60.0
Controller = Literal["memory", "pids", "cpu"]
CONTROLLERS: Final[tuple[Controller, ...]] = ("memory", "pids", "cpu")
_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR})
_SWAP: Final = frozenset({"memory.memsw.limit_in_bytes", "memory.swap.max"})
"""Files that a kernel which does not count swap lacks."""
_LIMIT_FILES: Final[Mapping[tuple[int, Controller], str]] = {
    (1, "memory"): "memory.limit_in_bytes",
    (1, "pids"): "pids.max",
    (1, "cpu"): "cpu.cfs_quota_us",
    (2, "memory"): "memory.max",
    (2, "pids"): "pids.max",
    (2, "cpu"): "cpu.max",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A directory below which groups with a certain controller can be made."""

    version: Literal[1, 2]
    directory: Path


class ControlGroups:
    """What control groups offer to this process; found out when first asked, once for this object.

    `chosen` names the directory of a version 2 tree to make groups in, for callers to whom one was delegated.
    """

    def __init__(self, chosen: Path | None = None) -> None:
        self._chosen = chosen
        self._places: dict[Controller, Place] | None = None
        self._reasons: dict[Controller, str] = {}

    def place(self, controller: Controller) -> Place | None:
        """Return where groups with this controller can be made; None if nowhere, see `reason`."""
        if self._places is None:
            self._places = self._try_all()
        return self._places.get(controller)

    def reason(self, controller: Controller) -> str:
        """Say why there is no place for this controller."""
        return self._reasons.get(controller, "no control group filesystem is mounted")

    def paths(self, sandbox_id: str, controllers: Iterable[Controller]) -> list[Path]:
        """Return the directories of a sandbox's group; one, where the controllers share a tree."""
        places = (self.place(controller) for controller in controllers)
        found = (place.directory / f"{PREFIX}{sandbox_id}" for place in places if place is not None)
        return list(dict.fromkeys(found))

    def discard_probes(self) -> None:
        """Remove the empty groups of processes that were killed while they tried."""
        for controller in CONTROLLERS:
            place = self.place(controller)
            for group in place.directory.glob(f"{_PROBE}*") if place else ():
                with contextlib.suppress(OSError):  # in use, or gone
                    if time.time() - group.stat().st_mtime > _PROBE_TAKES:
                        group.rmdir()

    def _try_all(self) -> dict[Controller, Place]:
        places = {}
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as subject:
            for controller in CONTROLLERS:
                place = self._first_usable(controller, subject.pid)
                if place is not None:
                    places[controller] = place
        return places

    def _first_usable(self, controller: Controller, subject: int) -> Place | None:
        for place in _candidates(controller, self._chosen):
            try:
                _try(place, controller, subject)
            except OSError as error:
                if exhausted(error):
                    raise
                self._reasons[controller] = str(error)
            else:
                return place
        return None


def _try(place: Place, controller: Controller, subject: int) -> None:
    group = place.directory / f"{_PROBE}{uuid.uuid4().hex[:12]}"
    if place.version == 2:
        _enable(place.directory, controller)
    group.mkdir()
    try:
        limit = group / _LIMIT_FILES[place.version, controller]
        if not limit.exists():
            raise FileNotFoundError(errno.ENOENT, "the controller is not enabled", str(limit))
        (group / "cgroup.procs").write_text(str(subject), encoding="ascii")
    finally:
        with contextlib.suppress(OSError):
            _write_existing(place.directory / "cgroup.procs", str(subject))
        _remove_when_empty(group, subject)


def _remove_when_empty(group: Path, subject: int) -> None:
    try:
        group.rmdir()
    except OSError:
        # It cannot go back, as into a version 2 group that has subgroups: the probing process is not needed any more.
        os.kill(subject, signal.SIGKILL)
        os.waitpid(subject, 0)
        group.rmdir()


def _enable(directory: Path, controller: Controller) -> None:
    control = directory / "cgroup.subtree_control"
    if controller not in control.read_text(encoding="ascii").split():
        control.write_text(f"+{controller}", encoding="ascii")


def _candidates(controller: Controller, chosen: Path | None) -> Iterator[Place]:
    if chosen is not None:
        yield Place(2 if (chosen / "cgroup.controllers").exists() else 1, chosen)
        return
    for mount, root, options in _mounts("cgroup2"):
        del options
        own = _below(mount, root, _own_path(""))
        # The group this process is in holds processes, so it can rarely pass controllers on; one above it may.
        while own is not None and own.is_relative_to(mount):
            if controller in _words(own / "cgroup.controllers"):
                yield Place(2, own)
            own = own.parent
    for mount, root, options in _mounts("cgroup"):
        own = _below(mount, root, _own_path(controller)) if controller in options else None
        if own is not None:
            yield Place(1, own)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError as error:
        if error.errno not in _GONE:  # above all a lack of descriptors must not look like emptiness
            raise
        return []


def _mounts(kind: str) -> Iterator[tuple[Path, str, list[str]]]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        name, _, options = after.split(" ", 2)
        if name == kind:
            fields = before.split()
            yield Path(fields[4]), fields[3], options.split(",")


def _own_path(controller: str) -> str | None:
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def _below(mount: Path, root: str, own: str | None) -> Path | None:
    """Return where a group is seen under a mount that shows the tree from `root` on."""
    if own is None or not Path(own).is_relative_to(root):
        return None
    path = mount / Path(own).relative_to(root)
    return path if path.is_dir() else None


class Group:
    """The group of one sandbox: a directory in each tree that is used."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)

    def create(self, settings: Mapping[Path, Mapping[str, str]]) -> None:
        """Make it, with the contents of its files; raises OSError, and leaves nothing then."""
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
        """Put a process into it; what the process starts from now on is in it too."""
        for directory in self._directories:
            (directory / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def members(self) -> set[int]:
        """Return the processes in it, never the calling one."""
        lines = (line for path in self._trees() for line in _words(path / "cgroup.procs"))
        # 0 stands for a process of a namespace that cannot be seen from here.
        return {int(line) for line in lines} - {0, os.getpid()}

    async def end(self) -> bool:
        """Kill what is in it, however fast it forks; True when nothing is left. The group can be used again."""
        forbidden: dict[Path, str] = {}
        try:
            for _ in range(200):
                with _retried_without_descriptors():
                    self._forbid_forks(forbidden)
                    members = self.members()
                    if not members:
                        return True
                    self._kill(members)
                await asyncio.sleep(0.01)
            return False
        finally:
            with _retried_without_descriptors():
                for path, value in forbidden.items():
                    _write_existing(path, value)

    def _forbid_forks(self, forbidden: dict[Path, str]) -> None:
        for directory in self._directories:
            limit = directory / "pids.max"
            if limit not in forbidden and (value := _words(limit)):
                _write_existing(limit, "0")
                forbidden[limit] = value[0]

    def _kill(self, members: Iterable[int]) -> None:
        for directory in self._directories:
            _write_existing(directory / "cgroup.kill", "1")  # version 2, Linux 5.14 and newer: everything at once
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def remove(self) -> None:
        """Kill what is in it and remove it; one that is not there is fine."""
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
            yield from _with_subgroups(directory)


def _with_subgroups(directory: Path) -> Iterator[Path]:
    # What a root user at isolation `none` has made below counts too.
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return
    yield directory
    for entry in entries:
        if entry.is_dir():
            yield from _with_subgroups(entry)


@contextlib.contextmanager
def _retried_without_descriptors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not exhausted(error):
            raise


def _write_existing(path: Path, value: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
