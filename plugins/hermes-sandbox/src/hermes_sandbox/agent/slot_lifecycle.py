"""Sets up and cleans up a slot, or the whole agent."""

from __future__ import annotations

import os
import resource
import stat
import sys

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.boot.loader import LOADER
from hermes_sandbox.agent.commands.live import LiveSession
from hermes_sandbox.agent.commands.robust import RobustSession
from hermes_sandbox.agent.file_access.archive_format import new_digest
from hermes_sandbox.agent.file_access.directories import make_directories
from hermes_sandbox.agent.launch import Identity
from hermes_sandbox.agent.process_bound import bind
from hermes_sandbox.agent.processes import read_file
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

NEEDED_LATER = ("gzip", "hashlib", "tarfile", "zlib")
_CAP_SETGID, _CAP_SETUID = 6, 7
_DELETE = """for place in "$0" "$@"; do
    rm -rf -- "$place" || { chmod -R u+rwX -- "$place"; rm -rf -- "$place"; }
done 2>/dev/null"""


def configure(limits: Mapping[str, int]) -> None:
    """Apply the settings of the agent and everything it starts."""
    for name, value in limits.items():
        kind = {"core": resource.RLIMIT_CORE, "file_size": resource.RLIMIT_FSIZE}[name]
        resource.setrlimit(kind, (value, value))


def may_change_user() -> bool:
    """Tell whether slots can have their own users here."""
    if os.geteuid() != 0:
        return False
    with suppress(OSError, ValueError, StopIteration):
        status = read_file("/proc/self/status").split(b"\n")
        granted = int(next(line for line in status if line.startswith(b"CapEff:")).split()[1], 16)
        mapped = sum(int(line.split()[2]) for line in read_file("/proc/self/uid_map").splitlines())
        return bool(granted >> _CAP_SETGID & 1 and granted >> _CAP_SETUID & 1 and mapped > 1)
    return False


def bind_slot(slot: Slot, request: Mapping[str, Any]) -> None:
    """Bound the slot's processes, if the agent is to do that."""
    _check(slot.identity)
    if request.get("processes"):
        slot.bound, slot.identity = bind(
            request["processes"],
            request["name"],
            slot.identity,
            shared_user=request.get("shared_user", False),
            exclusive=request["exclusive"],
            may_group=request.get("may_group", True),
        )


def begin(slot: Slot, request: Mapping[str, Any]) -> None:
    """Make the slot's workspace and a new session in it."""
    if slot.identity is not None:
        # Not later as the slot's user: Python may be installed where only root can read, such as /root.
        new_digest()
    workspace = slot.path("")
    if request.get("own_directory"):
        make_directories(os.path.dirname(workspace))
        os.mkdir(workspace, 0o700)  # never an existing one
        _give(workspace, slot.identity)
    elif not os.path.exists(workspace):
        make_directories(workspace)
        _give(workspace, slot.identity)
    else:
        _unlock(slot)
    directory = request["state_dir"] or f"/tmp/hermes-{os.urandom(8).hex()}"  # noqa: S108 - its name is unguessable
    session = LiveSession(slot, directory) if slot.kind == "live" else RobustSession(slot, directory)
    session.begin_in(request["cwd"])
    slot.session = session


def _unlock(slot: Slot) -> None:
    # A workspace closed by its own user would be closed to a verifier too; one closed by another user stays closed.
    with slot.acting(), suppress(OSError):
        mode = stat.S_IMODE(os.stat(slot.workspace).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(slot.workspace, mode | 0o700)


def _check(identity: Identity | None) -> None:
    if identity is None:
        return
    if identity.uid == 0 or not may_change_user():
        raise PermissionError(1, f"a slot cannot have user {identity.uid} under an agent of user {os.getuid()}")
    # Python may be installed where the slot's user cannot read: import now what is needed while acting as that user.
    for name in NEEDED_LATER:
        __import__(name)


def _give(path: str, identity: Identity | None) -> None:
    if identity is not None:
        os.chown(path, identity.uid, identity.gid)


def end(slot: Slot, then: Callable[[OSError | None], None]) -> None:
    """Kill a slot's processes and delete what the agent made for it; calls back with the error, if any."""
    slot.restart()

    def tear_down(clean: bool) -> None:  # noqa: FBT001 - a callback
        slot.restart()  # again: until they were killed, its processes could save something
        problem = slot.unbind() if clean else OSError("processes of the slot cannot be killed")
        if problem is not None:
            then(problem)
        elif slot.own_directory or slot.leftovers:
            _delete(slot, then)
        else:
            then(None)

    slot.kill_all(tear_down)


def _regain(slot: Slot) -> None:
    # A read-only workspace belongs to root; its directories must be writable to delete their entries.
    if not slot.own_directory or slot.identity is None or os.lstat(slot.workspace).st_uid == slot.identity.uid:
        return
    # From the bottom up: a directory that was given away may be closed to root, which may lack capabilities.
    for folder, _, _ in os.walk(slot.workspace, topdown=False):
        _give(folder, slot.identity)


def _delete(slot: Slot, then: Callable[[OSError | None], None], tries: int = 3) -> None:
    # By a process of the slot's user: files that this user could not delete are not deleted for it. A program, because
    # directories can be nested deeper than the longest path.
    own = [slot.workspace] if slot.own_directory else []

    def remove_places(status: int) -> None:
        try:
            with suppress(FileNotFoundError):
                for place in own:
                    os.rmdir(place)
        except OSError as error:
            if tries > 1:  # the obstacle may be gone, and a second try does no harm
                _delete(slot, then, tries - 1)
            else:
                left = ", ".join(sorted(os.listdir(slot.workspace))[:3])
                then(OSError(error.errno, f"{error.strerror}: rm ended with status {status} and left {left}"))
        else:
            then(None)

    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            _regain(slot)
        argv = [slot.bash, "-c", _DELETE, *own, *sorted(slot.leftovers)]
        variables = {"PATH": os.defpath}
        slot.loop.on_exit(slot.spawn(argv, variables, [(null, 0), (null, 1), (null, 2)]), remove_places)
    except OSError as error:
        then(error)
    finally:
        os.close(null)


def install(name: str, source: bytes) -> None:
    """Make a missing pure-Python module importable from its text."""
    module = type(sys)(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102 - it comes from the caller
    sys.modules[name] = module


def start_again() -> None:
    """Replace this process by a new Python that waits for an agent on the same stream."""
    signal.set_wakeup_fd(-1)
    program = sys.executable or os.readlink("/proc/self/exe")
    os.execv(program, [program, "-I", "-S", "-E", "-u", "-c", LOADER])  # noqa: S606 - no shell is wanted
