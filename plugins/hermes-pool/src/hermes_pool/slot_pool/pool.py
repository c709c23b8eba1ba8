"""The slot pool of one backend."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Hashable

from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.slot_pool.creation_rate import load_per_core
from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.slot_queue import SlotQueue
from hermes_pool.slot_pool.slot_records import Slot
from hermes_pool.statistics import PoolStats
from hermes_sandbox.backends import MakeHost, SlotOffer, SlotRequest, SlotReservation


class MemberHostPool:
    """The hosts of one backend in a slot queue, which other backends may share; implements `HostPool`."""

    def __init__(self, queue: SlotQueue, fleet: Fleet) -> None:
        self._queue = queue
        self._fleet = fleet

    @property
    def capacity(self) -> int | None:
        """The number of slots of `max_hosts` hosts; None before the first request."""
        return self._fleet.capacity

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Wait for a slot in a host of this key, and return it. A cancelled call keeps neither slot nor queue position.

        Raises:
            SlotUnavailableError: The queue has not moved for `acquire_timeout`, or is full.
            BackendError: No host of this kind can be started.
        """
        waiter = self._queue.enter(request, member=self._fleet.number)
        self._queue.offer(waiter, {self._fleet: SlotOffer(key, make_host, limit)})
        return await self._queue.take(waiter)

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the pool that owns the queue refuses its waiters when it is closed."""
        return contextlib.nullcontext()

    async def aclose(self) -> None:
        """Do nothing: the pool that owns the queue ends the hosts."""


class SlotPool(MemberHostPool):
    """Gives the sandboxes of one backend their slots in shared hosts, in order and within bounds.

    Args:
        options: Bounds and times.
        name: Name of the backend in messages.
        load: Returns the load per core of the machine that starts hosts.
        chance: Source of the jitter of pauses.
        names: Names of the options in messages, as the user sets them.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        load: Callable[[], float] = load_per_core,
        chance: random.Random | None = None,
        names: OptionNames | None = None,
    ) -> None:
        queue = SlotQueue(options, name=name, members=(name,), load=load, chance=chance, names=names)
        super().__init__(queue, queue.fleets[0])
        self.options = options

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return self._queue.waiting

    def stats(self) -> PoolStats:
        """Return the pool's current statistics."""
        return self._queue.stats()

    def slots(self) -> list[Slot]:
        """Return a record of every slot, in use or free."""
        return self._queue.slots()

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Refuse all waiters, and new ones within the block."""
        return self._queue.refuse_all()

    async def aclose(self) -> None:
        """Refuse all waiters and end every host, in use or not. Safe to call twice; the pool is usable again then.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        await self._queue.aclose()
