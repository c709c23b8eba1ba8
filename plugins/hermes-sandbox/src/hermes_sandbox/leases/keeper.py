"""The leases that one backend object holds, and the heartbeat that moves their deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError
from hermes_sandbox.leases.book import Lease, LeaseBook

_BEATS: Final = 4
"""Checks of deadlines per shortest lifetime; a deadline less than half a lifetime away is moved."""
_SLOWEST: Final = 60.0


class LeaseKeeper:
    """Writes leases, and moves the deadlines of open sandboxes while the event loop runs.

    Belongs to one event loop at a time. A stopped or hanging process moves no deadline: its sandboxes are listed as
    overdue.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[LeaseBook, Lease]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._amending: set[str] = set()

    @property
    def count(self) -> int:
        """How many leases it holds."""
        return len(self._held)

    async def take(self, book: LeaseBook, lease: Lease) -> None:
        """Write a lease and hold it; it is on disk when this returns, and not if this is cancelled."""
        try:
            await run_uncancelled(asyncio.to_thread(book.write, lease))
        except asyncio.CancelledError:
            await run_uncancelled(asyncio.to_thread(book.remove, lease.sandbox_id))
            raise
        self._held[lease.sandbox_id] = (book, lease)
        if self._timer is None:
            self._schedule()

    async def amend(self, sandbox_id: str, handle: Mapping[str, Any]) -> None:
        """Replace the handle in the lease of a sandbox, if there is one; it is on disk when this returns."""
        # No heartbeat may write the old lease, neither one in progress nor one that begins meanwhile.
        self._amending.add(sandbox_id)
        try:
            if self._beating is not None:
                await asyncio.wait((self._beating,))
            if sandbox_id not in self._held:
                return
            book, lease = self._held[sandbox_id]
            amended = dataclasses.replace(lease, handle=handle)
            self._held[sandbox_id] = (book, amended)
            await run_uncancelled(asyncio.to_thread(book.write, amended))
        finally:
            self._amending.discard(sandbox_id)

    async def give_up(self, book: LeaseBook, sandbox_id: str) -> None:
        """Remove a lease, from the book in which it was taken if it is held."""
        book, _ = self._held.pop(sandbox_id, (book, None))
        if self._beating is not None:
            # A heartbeat in progress would write it again.
            await asyncio.wait((self._beating,))
        await asyncio.to_thread(book.remove, sandbox_id)
        if not self._held and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        shortest = min(_lifetime(lease) for _, lease in self._held.values())
        self._timer = asyncio.get_running_loop().call_later(min(_SLOWEST, shortest / _BEATS), self._beat)

    def _beat(self) -> None:
        self._beating = asyncio.ensure_future(self._extend())
        self._timer = None
        if self._held:
            self._schedule()

    async def _extend(self) -> None:
        now = time.time()
        for sandbox_id in list(self._held):
            if sandbox_id not in self._held or sandbox_id in self._amending:
                continue
            book, lease = self._held[sandbox_id]
            if lease.deadline - now > _lifetime(lease) / 2:
                continue
            extended = None
            with contextlib.suppress(BackendError):  # a full disk: the next heartbeat tries again
                extended = await asyncio.to_thread(book.extend, lease, now + _lifetime(lease))
            if extended is not None and sandbox_id in self._held:
                self._held[sandbox_id] = (book, extended)


def _lifetime(lease: Lease) -> float:
    return max(1.0, lease.lifetime)
