"""A few lines for the Python inside: a directory tree is given to a user, as far as it is the container's own."""

from __future__ import annotations

from typing import Final

OWNING: Final = r"""
import os
def own(top, uid, gid, locked=False):
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = {line.split()[1].replace("\\040", " ") for line in file}
    def give(path):
        os.lchown(path, uid, gid)
        if locked and not os.path.islink(path):
            program = os.path.isdir(path) or os.lstat(path).st_mode & 0o111
            os.chmod(path, 0o550 if program else 0o440)
    if not os.path.isdir(top) or os.path.islink(top) or (top in mounts and not locked):
        return
    # From the top down: a directory that is root's can be listed, whatever its mode was.
    give(top)
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(folder, name) not in mounts]
        for name in names + files:
            if os.path.join(folder, name) not in mounts:
                give(os.path.join(folder, name))
"""
"""`own(top, uid, gid)` leaves what is mounted below alone.

With `locked`, nobody but the user can write there any more, and the group can read.
"""

SHARING: Final = r"""
import os
def share(top):
    os.makedirs(top, exist_ok=True)
    os.chown(top, 0, 0)
    os.chmod(top, 0o711)
"""
"""`share(top)` makes a directory in which only root makes others, whose names nobody else can list."""
