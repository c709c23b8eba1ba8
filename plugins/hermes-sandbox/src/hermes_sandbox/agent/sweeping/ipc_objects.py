"""Removes the System V objects of users without processes: shared memory, semaphores, message queues."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from hermes_sandbox.agent.sweeping.removal import act_as

_LIBC = ctypes.CDLL(None, use_errno=True)
_REMOVE = 0
"""IPC_RMID."""
_OBJECTS: dict[str, tuple[str, Callable[[int], int]]] = {
    "shm": ("shmid", lambda number: _LIBC.shmctl(number, _REMOVE, None)),
    "sem": ("semid", lambda number: _LIBC.semctl(number, 0, _REMOVE, 0)),
    "msg": ("msqid", lambda number: _LIBC.msgctl(number, _REMOVE, None)),
}


def remove_ipc_objects(dead: Collection[int]) -> list[str]:
    """Remove objects that these users own or made, and return those that are left, with the reason."""
    left = []
    for kind, (column, remove) in _OBJECTS.items():
        for row in _rows(kind):
            user = next((int(row[field]) for field in ("uid", "cuid") if int(row[field]) in dead), None)
            if user is None:
                continue
            act_as(user)
            if remove(int(row[column])) != 0:
                left.append(f"{kind} {row[column]}: {os.strerror(ctypes.get_errno())}")
            act_as(0)
    return left


def _rows(kind: str) -> Iterator[dict[str, str]]:
    # A kernel without System V IPC has no such files.
    with contextlib.suppress(FileNotFoundError):
        columns, *rows = Path(f"/proc/sysvipc/{kind}").read_text(encoding="ascii").splitlines()
        for row in rows:
            yield dict(zip(columns.split(), row.split()))  # noqa: B905 - not before Python 3.10
