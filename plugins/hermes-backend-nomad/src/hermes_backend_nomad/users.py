"""Users of slots: each has one that nobody else has."""

from __future__ import annotations

import secrets
from typing import Any, Final

_FIRST_UID: Final = 1 << 20
_UIDS: Final = 1 << 15
"""Users of one container."""
_CONTAINERS: Final = 65000
"""How many containers there can be until the numbers begin anew."""


def first_uid() -> int:
    """Return one less than the first user of a container's slots.

    The kernel of a node counts the processes of a user over all containers, so each has users of its own.
    """
    return _FIRST_UID + secrets.randbelow(_CONTAINERS) * _UIDS


def slot_of(folder: str, sandbox_id: str, uid: int, processes: int | None) -> dict[str, Any]:
    """Return what a slot is opened with: a user and a directory that nobody else has in its container."""
    fields = {"workspace": f"{folder}/{sandbox_id}", "uid": uid, "gid": uid, "umask": 0o077, "own_directory": True}
    return {**fields, "processes": processes}


def slot_without_user(folder: str, sandbox_id: str) -> dict[str, Any]:
    """Return what a slot is opened with where the agent cannot become another user."""
    return {"workspace": f"{folder}/{sandbox_id}", "umask": 0o077, "own_directory": True}
