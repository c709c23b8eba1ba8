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
    """One backend's share of a queue that is its pool's; implements `HostPool`."""

    def __init__(self, queue: SlotQueue, fleet: Fleet) -> None:
        self._queue = queue
        self._fleet = fleet

    @property
    def capacity(self) -> int | None:
        """How many slots there would be with all hosts; None before the first one was asked for."""
        return self._fleet.capacity

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a host of this key; when cancelled, nothing is kept, no place in the queue either.

        Raises:
            SlotUnavailableError: The queue does not move any more, or is full.
            BackendError: No host of this kind can be started.
        """
        waiter = self._queue.enter(request, member=self._fleet.number)
        self._queue.offer(waiter, {self._fleet: SlotOffer(key, make_host, limit)})
        return await self._queue.take(waiter)

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the pool refuses those who wait, when it is closed."""
        return contextlib.nullcontext()

    async def aclose(self) -> None:
        """Do nothing: the hosts are the pool's to end."""


class SlotPool(MemberHostPool):
    """Gives the sandboxes of one backend their seats in shared hosts: in order and bounded.

    Args:
        options: Bounds and times.
        name: Of the backend, for messages.
        load: Returns the load per core of the machine that starts hosts.
        chance: For the jitter of pauses.
        names: What the options are called where a user sets them.
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
        """How many wait for a slot."""
        return self._queue.waiting

    def stats(self) -> PoolStats:
        """Return the pool's numbers at this moment."""
        return self._queue.stats()

    def slots(self) -> list[Slot]:
        """Return a record of every slot, taken or free."""
        return self._queue.slots()

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Refuse those who wait, and whoever comes within the block."""
        return self._queue.refuse_all()

    async def aclose(self) -> None:
        """Refuse those who wait, end every host, used or not; safe to call twice, and the pool is new afterwards.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        await self._queue.aclose()
