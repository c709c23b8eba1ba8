"""Control groups that bound the number of processes: finds where one can be made, and ends its processes."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple, contextmanager, signal, suppress
from hermes_sandbox.agent.processes import wait_for_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROUP_PREFIX = "hermes-sandbox-"
PROBE_PREFIX = GROUP_PREFIX + "probe-"
GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR})
_NOT_REFUSED = 3
_DYING = 1.0
"""Seconds in which the kernel must have removed the last of the killed processes."""


class GroupPlace(NamedTuple):
    """A directory below which groups with a certain controller can be made, and its cgroup version."""

    version: int
    directory: Path


def candidates(controller: str) -> Iterator[GroupPlace]:
    """Yield places where a group with this controller might be made, the best first; none is tried."""
    for mount, root, _options in _mounts("cgroup2"):
        own = _below(mount, root, _own_path(""))
        # The group of this process holds processes, so it can rarely pass controllers on; one above it may.
        while own is not None and (own == mount or mount in own.parents):
            if controller in words(own / "cgroup.controllers"):
                yield GroupPlace(2, own)
            own = own.parent
    for mount, root, options in _mounts("cgroup"):
        own = _below(mount, root, _own_path(controller)) if controller in options else None
        if own is not None:
            yield GroupPlace(1, own)


@contextmanager
def enable_controller(place: GroupPlace, controller: str) -> Iterator[None]:
    """Enable a controller for groups below a place; disable it again if the block fails."""
    control = place.directory / "cgroup.subtree_control"
    if place.version == 1 or controller in control.read_text(encoding="ascii").split():
        yield
        return
    control.write_text("+" + controller, encoding="ascii")
    try:
        yield
    except BaseException:
        with suppress(OSError):
            control.write_text("-" + controller, encoding="ascii")
        raise


def words(path: Path) -> list[str]:
    """Return the entries of a file of a group; none if the group is gone."""
    try:
        return path.read_text(encoding="ascii").split()
    except OSError as error:
        if error.errno not in GONE:  # a lack of descriptors, above all, must not look like an empty group
            raise
        return []


def with_subgroups(directory: Path) -> Iterator[Path]:
    """Yield a group and those below it, also groups that a root user has made there."""
    try:
        with os.scandir(directory) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    yield directory
    for name in below:
        yield from with_subgroups(directory / name)


def write_existing(path: Path, value: str) -> None:
    """Write to a file of a group; a missing group is not an error."""
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)


def kill_members(directory: Path, members: Iterable[int]) -> None:
    """Kill the processes of a group."""
    # Version 2, Linux 5.14 and newer: everything at once.
    write_existing(directory / "cgroup.kill", "1")
    for pid in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def own_group(place: GroupPlace) -> Path:
    """Return the group of the calling process in the tree of a place."""
    for mount, root, options in _mounts("cgroup2" if place.version == 2 else "cgroup"):
        if place.version == 1 and "pids" not in options:
            continue
        own = _below(mount, root, _own_path("" if place.version == 2 else "pids"))
        if own is not None:
            return own
    return place.directory


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
    """Return the path of a group under a mount that shows the tree from `root` on."""
    if own is None or not (own == root or Path(root) in Path(own).parents):
        return None
    path = mount / Path(own).relative_to(root)
    return path if path.is_dir() else None


class PidsGroup:
    """A group for the processes of one slot, made by the agent, which stays outside of it and can always act."""

    def __init__(self, place: GroupPlace, name: str, limit: int) -> None:
        self._home = own_group(place)
        self._directory = place.directory / (GROUP_PREFIX + name)
        self._limit = str(limit)
        try:
            self._directory.mkdir()
        except FileExistsError:
            # Left by an earlier agent that was killed: the processes in it are this slot's.
            self.kill()
        try:
            self.allow()
        except OSError:
            self._directory.rmdir()
            raise

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Move the calling process into it for the block; processes started within the block stay in it."""
        # Cheaper than a fork of the agent that enters the group before it runs its program.
        _move_into(self._directory)
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        try:
            _move_into(self._home)
        except OSError:
            # Removed while this process was not in it.
            self._home = self._directory.parent
            _move_into(self._home)

    def allow(self) -> None:
        """Allow its processes to start others, up to the limit."""
        (self._directory / "pids.max").write_text(self._limit, encoding="ascii")

    def forbid(self) -> None:
        """Forbid its processes to start others."""
        write_existing(self._directory / "pids.max", "0")

    def members(self) -> set[int]:
        """Return the processes in it, also in groups that they have made below."""
        lines = (line for path in with_subgroups(self._directory) for line in words(path / "cgroup.procs"))
        # 0 means a process of a namespace that is not visible here.
        return {int(line) for line in lines} - {0, os.getpid()}

    def kill(self) -> set[int]:
        """Kill all its processes, and return them; none can be started meanwhile."""
        self.forbid()
        members = self.members()
        kill_members(self._directory, members)
        return members

    def remove(self) -> None:
        """Remove the empty group; raises OSError if that fails."""
        remove_tree(self._directory)


def _move_into(directory: Path) -> None:
    (directory / "cgroup.procs").write_text("0", encoding="ascii")


def remove_tree(directory: Path) -> None:
    """Remove an empty group and those below it; a missing one is not an error. Raises OSError if it stays."""
    end = time.monotonic() + _DYING
    while True:
        try:
            for path in reversed(list(with_subgroups(directory))):
                path.rmdir()
        except OSError as error:
            # The kernel removes dead processes after it unlists them.
            if error.errno != errno.EBUSY or time.monotonic() >= end:
                raise
            time.sleep(0.002)
        else:
            return


def first_place() -> GroupPlace | None:
    """Return where a group that really bounds its processes can be made, by trying; None if nowhere."""
    with suppress(OSError):
        for candidate in candidates("pids"):
            place = _beside_own(candidate)
            if place.version == 1 or not _is_limited(place.directory):
                with suppress(OSError):
                    with enable_controller(place, "pids"):
                        _require_bound(place)
                    return place
    return None


def _beside_own(place: GroupPlace) -> GroupPlace:
    # Not in the agent's own group: its limits apply to all, and version 2 allows processes only in leaves.
    inside = place.directory.name.startswith(GROUP_PREFIX)
    return place._replace(directory=place.directory.parent) if inside else place


def _is_limited(place: Path) -> bool:
    """Tell whether a process that moves below a place, in the tree of version 2, would escape other limits."""
    own = own_group(GroupPlace(2, place))
    passed = [own, *own.parents]
    passed = passed[: passed.index(place)] if place in passed else []
    limits = (words(path / name)[:1] for path in passed for name in ("memory.max", "cpu.max", "pids.max"))
    return any(limit not in ([], ["max"]) for limit in limits)


def _require_bound(place: GroupPlace) -> None:
    group = PidsGroup(place, "probe-" + os.urandom(6).hex(), 1)
    try:
        pid = os.fork()
        if pid == 0:
            _try_to_fork(group)
        if wait_for_own(pid) != 0:
            raise OSError(errno.ENOTSUP, "a limit of processes has no effect there", str(place.directory))
    finally:
        group.remove()


def _try_to_fork(group: PidsGroup) -> None:
    code = _NOT_REFUSED
    try:
        with group.enter():
            try:
                if os.fork() == 0:
                    os._exit(0)
            except OSError as error:
                code = 0 if error.errno == errno.EAGAIN else _NOT_REFUSED
    except OSError:
        code = _NOT_REFUSED  # it could enter, but not leave again
    finally:
        os._exit(code)
