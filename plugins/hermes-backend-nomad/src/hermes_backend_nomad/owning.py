"""Small programs for the Python inside, run by root: whose directories are."""

from __future__ import annotations

from typing import Final

_SHARE: Final = """
import os
os.makedirs({top!r}, exist_ok=True)
os.chown({top!r}, 0, 0)
os.chmod({top!r}, 0o711)
"""
_LOCK: Final = """
import os
def end_processes():
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setresgid({user}, {user}, {user})
            os.setresuid({user}, {user}, {user})
            os.kill(-1, 9)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
def lock(path):
    is_program = os.path.isdir(path) or os.lstat(path).st_mode & 0o111
    os.lchown(path, 0, {user})
    if not os.path.islink(path):
        os.chmod(path, 0o550 if is_program else 0o440)
# Nobody is to put a symlink where a file has just been looked at.
end_processes()
lock({top!r})
# From the top down: what is root's can be listed, whatever its mode was.
for folder, folders, files in os.walk({top!r}):
    for name in folders + files:
        lock(os.path.join(folder, name))
"""


def program_to_share(top: str) -> str:
    """Make a directory in which only root makes others, whose names nobody else can list."""
    return _SHARE.format(top=top)


def program_to_lock(top: str, user: int) -> str:
    """Kill a user's processes, and give a directory to root, for that user's group to read and run."""
    return _LOCK.format(top=top, user=user)
