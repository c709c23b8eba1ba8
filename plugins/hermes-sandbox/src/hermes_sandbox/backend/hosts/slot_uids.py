"""The uids of slots: each slot has its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_FEW_UIDS: Final = 20000
_FIRST_UID: Final = 1 << 20
_UIDS: Final = 1 << 15
"""The number of uids of one host."""
_HOSTS: Final = 65000
"""The number of hosts until uids are reused."""


def first_uid(host_id: str, *, few: bool = False) -> int:
    """Return one less than the first uid of a host's slots, computed from the host's hexadecimal id.

    A kernel counts a user's processes over all containers, so each host has its own uids, except with `few`:
    if only 65,536 users exist inside, or the host has a kernel of its own.
    """
    return _FEW_UIDS if few else _FIRST_UID + int(host_id, 16) % _HOSTS * _UIDS


def slot_fields(
    folder: str, sandbox_id: str, uid: int | None, processes: int | None = None, *, kept: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the fields for opening a slot with its own directory and its own user.

    Without `uid`, commands run as the agent's user. Otherwise, all that the user owns in the host is removed when the
    slot is closed, except in `kept`, the paths of volumes. `processes` bounds the slot's: None means the sandbox's
    limit, 0 no bound by the agent, because the host has one.
    """
    bound = {} if processes is None else {"processes": processes}
    fields = {"workspace": f"{folder}/{sandbox_id}", "umask": 0o077, "own_directory": True, **bound}
    if uid is None:
        return fields
    return {**fields, "uid": uid, "gid": uid, "sweep": {"tops": ["/"], "kept": sorted(kept)}}
