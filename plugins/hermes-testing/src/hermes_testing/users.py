"""Unused user ids, for tests that run commands as other users."""

from __future__ import annotations

import grp
import os
import pwd
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["free_users"]

_HIGHEST_ID: Final = 2_147_000_000
_FIRST_ID: Final = 2_001_000_000
"""Above the ids that SSSD gives to directory users and systemd to containers."""
_BLOCK: Final = 100
_EVERY_ID: Final = "0 0 4294967295"
_NO_CHANGE: Final = range(2**32 - 1, 2**32)
"""The value that chown and setresuid read as "unchanged"; it is not a valid id and must not be passed to them."""


def free_users(count: int = 10, *, maps: tuple[str, str] | None = None) -> int:
    """Return the first of `count` unused user ids (at most 100) that no other test uses meanwhile.

    A slot that ends kills all processes of its user, so a wrong id kills unrelated processes. The numbers are unused as
    group ids too. They belong to this process until it ends, by a socket whose name only one process can have. Tests
    call this during collection, so it never raises: if this user namespace has no spare ids, as under `unshare -r`, no
    process can become one of them, and setuid or setgid fails. `maps` are texts to read instead of /proc/self/uid_map
    and gid_map.
    """
    mapped = [_mapped_ids(text) for text in maps or (_map_of_this_process("uid"), _map_of_this_process("gid"))]
    end = min(_HIGHEST_ID, *(_end_of_ids(ids) for ids in mapped))
    first = _FIRST_ID if end > _FIRST_ID + _BLOCK else end // 2
    blocks = (end - first) // _BLOCK
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    taken = [*_ids_of_processes(), *_subordinate_ids("subuid"), *_subordinate_ids("subgid"), range(1)]
    for turn in range(min(blocks, 10_000)):
        start = first + (64 * os.getpid() + worker + turn) % blocks * _BLOCK
        ids = range(start, start + count)
        if not _overlaps(ids, taken) and not any(map(_has_a_name, ids)) and _is_ours(ids.start):
            return ids.start
    return _first_that_nobody_can_become(count, min(mapped, key=_end_of_ids))


def _map_of_this_process(kind: str) -> str:
    """Return the id mapping of this user namespace (user_namespaces(7)); without maps, all ids."""
    try:
        return Path(f"/proc/self/{kind}_map").read_text(encoding="ascii")
    except OSError:
        return _EVERY_ID


def _mapped_ids(text: str) -> list[range]:
    """Return the ids of a user namespace, lowest first; a line is `inside outside count`."""
    lines = [[int(number) for number in line.split()] for line in text.splitlines()]
    return sorted((range(inside, inside + count) for inside, _, count in lines), key=lambda ids: ids.start)


def _end_of_ids(mapped: Iterable[range]) -> int:
    """Return the end of the gapless range of ids from 0; 0 if the namespace has no root."""
    end = 0
    for ids in mapped:
        if ids.start <= end:
            end = max(end, ids.stop)
    return end


def _first_that_nobody_can_become(count: int, mapped: Iterable[range]) -> int:
    """Return the first of `count` high numbers that are not mapped (or too high for an id) and have no name."""
    known = [*mapped, _NO_CHANGE]
    start = _HIGHEST_ID
    while _overlaps(ids := range(start, start + count), known) or any(map(_has_a_name, ids)):
        start = max([start + _BLOCK, *(one.stop for one in known if _overlaps(ids, [one]))])
    return start


def _overlaps(ids: range, others: Iterable[range]) -> bool:
    return any(one.start < ids.stop and ids.start < one.stop for one in others)


def _ids_of_processes() -> set[range]:
    """Return all kinds of user and group ids of running processes."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a glob fails if one ends meanwhile
        with suppress(OSError):  # it has ended meanwhile
            lines = Path("/proc", name, "status").read_text(encoding="utf-8", errors="replace").splitlines()
            ids = [line.split()[1:] for line in lines if line.startswith(("Uid:", "Gid:", "Groups:"))]
            found |= {range(int(one), int(one) + 1) for line in ids for one in line}
    return found


def _subordinate_ids(name: str) -> list[range]:
    """Return the ranges that users may give to their containers."""
    found = []
    with suppress(OSError):
        for line in Path("/etc", name).read_text(encoding="utf-8").splitlines():
            fields = line.split(":")
            if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
                found.append(range(int(fields[1]), int(fields[1]) + int(fields[2])))
    return found


def _has_a_name(number: int) -> bool:
    """Tell whether a user or group with this number exists."""
    for look in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError, OverflowError):  # too high for an id
            look(number)
            return True
    return False


def _is_ours(number: int) -> bool:
    """Claim a number; False if another process of this machine has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0hermes-test-users-{number}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open until this process ends, and not inherited
    return True
