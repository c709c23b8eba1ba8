"""Small programs for the Python inside, run by root: whose the workspace is, and what the sandbox's variables are."""

from __future__ import annotations

from typing import Final

_SAY: Final = r"""
import json, os, sys
sys.stderr.write(json.dumps(dict(os.environ)) + "\n")
sys.stderr.flush()
"""
_PREPARE: Final = r"""
def prepare(top, uid, gid, shared):
    os.makedirs(top, exist_ok=True)
    if os.getuid() == 0:
        os.chown(top, uid, gid)
        os.chmod(top, 0o711 if shared else 0o755)
        above = os.path.dirname(top)
        if not shared and above != "/":
            os.chmod(above, 0o755)
"""
_LOCK: Final = r"""
import os
def stop(uid, gid):
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, 9)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
def lock(path, gid):
    os.lchown(path, 0, gid)
    if not os.path.islink(path):
        program = os.path.isdir(path) or os.lstat(path).st_mode & 0o111
        os.chmod(path, 0o550 if program else 0o440)
def lock_all(top, gid):
    lock(top, gid)
    # From the top down: a directory that is root's can be listed, whatever its mode was.
    for folder, names, files in os.walk(top):
        for name in names + files:
            lock(os.path.join(folder, name), gid)
"""


def program_to_prepare(folder: str, identity: tuple[int, int] | None) -> str:
    """Say the sandbox's variables as a line of JSON on standard error, and make a directory.

    It is given to a user; without one it is shared: only root makes others in it, whose names nobody else can list.
    """
    uid, gid = identity or (0, 0)
    return f"{_SAY}\n{_PREPARE}\nprepare({folder!r}, {uid}, {gid}, {identity is None})\n"


def program_to_lock(folder: str, identity: tuple[int, int]) -> str:
    """Kill a user's processes, and give a directory to root, for that user's group to read and run.

    First the processes: nobody is to put a symlink where a file has just been looked at.
    """
    uid, gid = identity
    return f"{_LOCK}\nstop({uid}, {gid})\nlock_all({folder!r}, {gid})\n"
