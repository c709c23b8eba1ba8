"""Users of slots: each has one that nobody else has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_FEW_UIDS: Final = 20000
_FIRST_UID: Final = 1 << 20
_UIDS: Final = 1 << 15
"""Users of one place."""
_PLACES: Final = 65000
"""How many places there can be until the numbers begin anew."""


def first_uid(place_id: str, *, few: bool = False) -> int:
    """Return one less than the first user of the slots of a place, by its id of hexadecimal digits.

    A kernel counts the processes of a user over all that it runs, so each place has users of its own, but for `few`:
    where only 65,536 users are seen inside, or the place has a kernel to itself.
    """
    return _FEW_UIDS if few else _FIRST_UID + int(place_id, 16) % _PLACES * _UIDS


def slot_fields(
    folder: str, sandbox_id: str, uid: int | None, processes: int | None = None, *, kept: Iterable[str] = ()
) -> dict[str, Any]:
    """Return what a slot is opened with: a directory that nobody else has in its place, and a user likewise.

    No `uid` leaves the commands with the agent's user. What another one owns anywhere in the place is removed when the
    slot is closed, but for what is in `kept`, the paths of volumes. `processes` bounds those of the slot: None by what
    the sandbox asks for, 0 not at all, where its place does that.
    """
    bound = {} if processes is None else {"processes": processes}
    fields = {"workspace": f"{folder}/{sandbox_id}", "umask": 0o077, "own_directory": True, **bound}
    if uid is None:
        return fields
    return {**fields, "uid": uid, "gid": uid, "sweep": {"tops": ["/"], "kept": sorted(kept)}}
