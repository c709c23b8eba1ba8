"""The program that runs before the agent inside: it prints the variables and creates the workspace."""

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


def startup_script(folder: str, identity: tuple[int, int] | None) -> str:
    """Return a program that prints the sandbox's variables as JSON on standard error and creates a directory.

    The directory belongs to the user; without a user it is shared: only root can create and list directories in it.
    """
    uid, gid = identity or (0, 0)
    return f"{_SAY}\n{_PREPARE}\nprepare({folder!r}, {uid}, {gid}, {identity is None})\n"
