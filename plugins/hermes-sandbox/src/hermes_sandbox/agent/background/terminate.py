"""Ends the processes of a background process: SIGTERM, after a while SIGKILL, then a check."""

from __future__ import annotations

import os
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal
from hermes_sandbox.agent.processes import (
    Patience,
    Process,
    read_marker,
    read_table,
    send,
    stop_and_kill,
    with_descendants,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LOOK = 0.02
_LAST = 2.0
"""Seconds without progress for killed processes to end; one that sleeps in the kernel may not."""


class Hunt:
    """Ends the tree below one process, its session, and the orphans with its mark.

    A process that was seen once is followed by id and start time, so that losing its parents, or clearing
    its environment, does not save it. `done` gets the number of processes that could not be killed.
    """

    def __init__(self, slot: Any, root: Process, marker: str, grace: float, done: Callable[[int], None]) -> None:
        self._slot = slot
        self._root = root
        self._marker = marker
        self._done = done
        self._seen: dict[int, int] = {}
        self._asked = False
        self._kill_at = time.monotonic() + grace
        self._patience = Patience(_LAST)

    def step(self) -> None:
        """Find and signal the processes, repeatedly until none is left."""
        now = time.monotonic()
        with self._slot.acting():
            members = self._members()
            over = not members or (now >= self._kill_at and self._patience.is_over(len(members)))
            if not over:
                self._signal(members, now)
        if over:
            self._done(len(members))
        else:
            self._slot.loop.after(_LOOK, self.step)

    def _signal(self, members: set[int], now: float) -> None:
        if now >= self._kill_at:
            stop_and_kill(self._members)
        elif not self._asked:
            self._asked = True
            send(members, signal.SIGTERM)
            send(members, signal.SIGCONT)  # a stopped process would not handle it

    def _members(self) -> set[int]:
        table = read_table()
        roots = {pid for pid, start in self._seen.items() if pid in table and table[pid].start == start}
        leader = table.get(self._root.pid)
        # A session's id is reused only after its last member is gone; then its leader is another process.
        is_ours = leader is None or leader.start == self._root.start
        roots.update(pid for pid, process in table.items() if self._is_mine(process, in_session=is_ours))
        found = {pid for pid in with_descendants(table, roots) if pid in table}
        self._seen.update((pid, table[pid].start) for pid in found)
        return found

    def _is_mine(self, process: Process, *, in_session: bool) -> bool:
        if in_session and process.session == self._root.pid:
            return True
        return process.parent == os.getpid() and read_marker(process.pid) == self._marker
