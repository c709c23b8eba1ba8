"""Removes the System V objects of users without processes: shared memory, semaphores, message queues."""

from __future__ import annotations

import os

from hermes_sandbox.agent.basics.libc import last_error, load_function
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.processes import read_file
from hermes_sandbox.agent.sweeping.removal import act_as

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_SHMCTL, _SEMCTL, _MSGCTL = map(load_function, ("shmctl", "semctl", "msgctl"))
_REMOVE = 0
"""IPC_RMID."""
_OBJECTS: dict[str, tuple[str, Callable[[int], int]]] = {
    "shm": ("shmid", lambda number: _SHMCTL(number, _REMOVE, None)),
    "sem": ("semid", lambda number: _SEMCTL(number, 0, _REMOVE, 0)),
    "msg": ("msqid", lambda number: _MSGCTL(number, _REMOVE, None)),
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
                left.append(f"{kind} {row[column]}: {os.strerror(last_error())}")
            act_as(0)
    return left


def _rows(kind: str) -> Iterator[dict[str, str]]:
    # A kernel without System V IPC has no such files.
    with suppress(FileNotFoundError):
        columns, *rows = read_file(f"/proc/sysvipc/{kind}").decode("ascii").splitlines()
        for row in rows:
            yield dict(zip(columns.split(), row.split()))  # noqa: B905 - not before Python 3.10
