"""Who may open the next sandbox, and on which member of a pool: in order over all members."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from hermes_core.contracts.errors import BackendError
from hermes_pool.backend.members import Member
from hermes_pool.options import PoolOptions
from hermes_pool.refusals import too_late, too_many
from hermes_pool.statistics import PoolStats, Waits, combine

_LOOK: Final = 0.5
"""Seconds between two looks for room that nobody has given back: a host may be well again."""


class Ticket:
    """The right to a sandbox of one member, counted there until it is given back."""

    def __init__(self, queue: SandboxQueue, member: Member, rollout_id: str | None) -> None:
        self.member = member
        self.rollout_id = rollout_id
        self._queue: SandboxQueue | None = queue

    def give_back(self) -> None:
        """Let the next one in; safe to call twice."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.took_back(self)


class SandboxQueue:
    """Lets sandboxes through in the order in which they came, each to the member with the most room.

    A trajectory that has a sandbox already is let through at once, to the member that it is on: it gives that one back
    only after it has had the other.
    """

    def __init__(self, options: PoolOptions, members: Sequence[Member], *, name: str) -> None:
        self._options = options
        self._members = members
        self._name = name
        self._waiting: OrderedDict[asyncio.Future[Ticket], str | None] = OrderedDict()
        self._holders: Counter[tuple[str, Member]] = Counter()
        self._waits = Waits()
        self._moved = 0.0
        """When somebody was last let in, or left."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        for member in members:
            member.pool.on_learned = self.look

    async def enter(self, rollout_id: str | None, *, seconds: float, first: bool = False) -> Ticket:
        """Wait for room; `first` is for whom a member has failed after he had waited.

        Raises:
            SlotUnavailableError: Nobody was let in, and nobody left, for so many seconds; or too many wait.
            BackendError: The pool is being closed.
        """
        if self._closing:
            raise self._closing_error()
        member = self._member_of(rollout_id)
        if member is not None:
            return self._ticket(member, rollout_id)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ticket] = loop.create_future()
        self._waiting[future] = rollout_id
        if first:
            self._waiting.move_to_end(future, last=False)
        self.look()
        if not future.done() and len(self._waiting) > self._options.max_waiting and not first:
            del self._waiting[future]
            raise too_many(self.stats())
        self._watch(loop)
        began = loop.time()
        try:
            ticket = await self._ticket_of(future, began, seconds)
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().give_back()
            raise
        finally:
            self._waiting.pop(future, None)
        self._waits.add(loop.time() - began)
        return ticket

    async def _ticket_of(self, future: asyncio.Future[Ticket], began: float, seconds: float) -> Ticket:
        while not future.done():
            left = max(began, self._moved) + seconds - asyncio.get_running_loop().time()
            if left <= 0 and not any(member.pool.has_coming for member in self._members):
                troubles = (member.trouble for member in self._members if member.trouble is not None)
                raise too_late(self.stats(), seconds, next(troubles, None), what="a member cannot be used")
            await asyncio.wait((future,), timeout=max(left, _LOOK))
        return future.result()

    @contextlib.contextmanager
    def refuse_all(self) -> Iterator[None]:
        """Refuse those who wait, and whoever comes within the block."""
        self._closing = True
        waiting, self._waiting = self._waiting, OrderedDict()
        for future in waiting:
            if not future.done():
                future.set_exception(self._closing_error())
        try:
            yield
        finally:
            self._closing = False

    def _closing_error(self) -> BackendError:
        return BackendError(f"pool {self._name!r} is being closed")

    def look(self) -> None:
        """Let through whom there is room for."""
        while self._waiting:
            member = self._roomiest()
            if member is None:
                return
            future, rollout_id = self._waiting.popitem(last=False)
            if not future.done():
                future.set_result(self._ticket(member, rollout_id))

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and self._waiting:
            self._timer = loop.call_later(_LOOK, self._look_again, loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.look()
        self._watch(loop)

    def set_apart(self, member: Member, error: BackendError) -> None:
        """Send nobody to a member for a while, as long as there are others."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.quarantine
        member.set_apart(error, until)
        loop.call_at(until, self.look)

    def took_back(self, ticket: Ticket) -> None:
        """Count a sandbox as gone."""
        self._moved = asyncio.get_running_loop().time()
        ticket.member.taken -= 1
        if ticket.rollout_id is not None:
            key = (ticket.rollout_id, ticket.member)
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
        self.look()

    def stats(self) -> PoolStats:
        """Return the numbers of all members together; the waits are those for room on any of them."""
        stats = combine(self._name, [member.pool.stats() for member in self._members], waiting=len(self._waiting))
        return dataclasses.replace(stats, waits=self._waits.summary())

    def _ticket(self, member: Member, rollout_id: str | None) -> Ticket:
        self._moved = asyncio.get_running_loop().time()
        member.taken += 1
        if rollout_id is not None:
            self._holders[rollout_id, member] += 1
        return Ticket(self, member, rollout_id)

    def _member_of(self, rollout_id: str | None) -> Member | None:
        if rollout_id is None:
            return None
        return next((member for member in self._members if self._holders[rollout_id, member]), None)

    def _roomiest(self) -> Member | None:
        now = asyncio.get_running_loop().time()
        able = [member for member in self._members if not member.is_apart(now)]
        if able:
            open_now = (member for member in able if member.free > 0)
            return max(open_now, key=lambda member: member.hoped_for, default=None)
        # They are tried all the same, in turn: what failed for one task need not fail for the next.
        apart = (member for member in self._members if member.free > 0)
        return min(apart, key=lambda member: member.apart_until, default=None)
