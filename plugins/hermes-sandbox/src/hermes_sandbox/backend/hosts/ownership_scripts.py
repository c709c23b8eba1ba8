"""Small programs for the Python inside a host, run as root, that change the owner of directories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_OWN: Final = r"""
import os
def own(top, uid, gid, kept=(), locked=False):
    def give(path):
        # Changing an owner makes an engine copy the whole file out of its image.
        if locked or os.lstat(path).st_uid != uid:
            os.lchown(path, uid, gid)
        if locked and not os.path.islink(path):
            program = os.path.isdir(path) or os.lstat(path).st_mode & 0o111
            os.chmod(path, 0o550 if program else 0o440)
    if not os.path.isdir(top) or os.path.islink(top) or top in kept:
        if locked:
            raise SystemExit(top + " is no directory of its own")
        return
    # From the top down: a directory that is root's can be listed, whatever its mode was.
    give(top)
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(folder, name) not in kept]
        for path in [os.path.join(folder, name) for name in names + files]:
            if path not in kept:
                give(path)
"""
_STOP: Final = r"""
import signal, time
def of_user(uid):
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/" + name + "/status") as file:
                lines = dict(line.split(":", 1) for line in file)
        except OSError:
            continue
        if int(lines["Uid"].split()[0]) == uid and lines["State"].split()[0] not in "ZX":
            found.add(int(name))
    return found
def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
def stop_each(uid):
    stopped = set()
    for _ in range(500):
        left = of_user(uid)
        if not left:
            return
        # All of them first: killed before, one would make room for another.
        if left - stopped:
            signal_all(left, signal.SIGSTOP)
            stopped |= left
        else:
            signal_all(left, signal.SIGKILL)
            time.sleep(0.01)
    raise SystemExit("processes of user %d cannot be killed" % uid)
def stop(uid, gid):
    try:
        pid = os.fork()
    except OSError:
        # The place is as full as it may be.
        return stop_each(uid)
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, 9)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
"""
_SHARE: Final = r"""
import os
def share(top):
    os.makedirs(top, exist_ok=True)
    os.chown(top, 0, 0)
    os.chmod(top, 0o711)
"""


def chown_script(folder: str, identity: tuple[int, int], kept: Sequence[str]) -> str:
    """Give a directory and everything in it to a user, except the paths in `kept`."""
    uid, gid = identity
    return f"{_OWN}\nown({folder!r}, {uid}, {gid}, {tuple(kept)!r})\n"


def make_readonly_script(folder: str, identity: tuple[int, int]) -> str:
    """Kill a user's processes, and give a directory to root, readable and executable for that user's group.

    The processes first: otherwise one could put a symlink where a file has just been checked.
    """
    uid, gid = identity
    return f"{_OWN}{_STOP}\nstop({uid}, {gid})\nown({folder!r}, 0, {gid}, locked=True)\n"


def shared_dir_script(folder: str) -> str:
    """Make a directory in which only root can make others, and only root can list them."""
    return f"{_SHARE}\nshare({folder!r})\n"
