"""The program that comes before the agent in the Python inside: what the variables are, whose the workspace is."""

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


def program_to_prepare(folder: str, identity: tuple[int, int] | None) -> str:
    """Say the sandbox's variables as a line of JSON on standard error, and make a directory.

    It is given to a user; without one it is shared: only root makes others in it, whose names nobody else can list.
    """
    uid, gid = identity or (0, 0)
    return f"{_SAY}\n{_PREPARE}\nprepare({folder!r}, {uid}, {gid}, {identity is None})\n"
