"""The backends of a pool, and how much room each has."""

from __future__ import annotations

import asyncio

from hermes_core.contracts.errors import BackendError
from hermes_pool.options import PoolOptions
from hermes_pool.slot_pool.pool import SlotPool
from hermes_sandbox.backends import AgentBackend, SlotRequest


class MemberPool(SlotPool):
    """The slot pool of one member. Part of the time that a sandbox has may have passed before it comes here."""

    def __init__(self, options: PoolOptions, *, name: str, has_others: bool) -> None:
        super().__init__(options, name=name, is_impatient=has_others)
        self.deadlines: dict[str, float] = {}
        """By sandbox, on the event loop's clock."""

    def time_left(self, request: SlotRequest) -> float:
        """Return what is left of the time, at least a moment."""
        deadline = self.deadlines.get(request.sandbox_id)
        if deadline is None:
            return super().time_left(request)
        return max(0.01, deadline - asyncio.get_running_loop().time())


class Member:
    """One backend of a pool.

    Attributes:
        name: The backend's, as the config has it.
        label: That, with its place in the config's list.
        taken: How many sandboxes it has or is making.
        trouble: Why it is set apart, so that nobody is sent to it while another member works; None while it is not.
    """

    def __init__(
        self, name: str, number: int, backend: AgentBackend, options: PoolOptions, *, has_others: bool
    ) -> None:
        self.name = name
        self.label = label = f"{name}#{number}"
        self.backend = backend
        self.pool = MemberPool(options, name=label, has_others=has_others)
        backend.places = self.pool
        self.taken = 0
        self.trouble: BackendError | None = None
        self._until = 0.0

    @property
    def free(self) -> int:
        """How many more sandboxes it can take now; the first one is sent alone, to learn how many there may be."""
        capacity = self.pool.capacity
        if capacity is None:
            return 0 if self.taken else 1
        return capacity - self.taken - self.pool.blocked

    @property
    def hoped_for(self) -> int:
        """How many more it could take by what the options allow; what its backend allows may be fewer."""
        return self.free if self.pool.capacity is not None else self.capacity - self.taken

    @property
    def capacity(self) -> int:
        """How many sandboxes it has room for; before its backend was asked, by what the options allow."""
        options = self.pool.options
        known = self.pool.capacity
        return options.max_hosts * options.slots_per_host if known is None else known

    def is_apart(self, now: float) -> bool:
        """Tell whether it has failed a short while ago."""
        if now >= self._until:
            self.trouble = None
        return self.trouble is not None

    def set_apart(self, error: BackendError, until: float) -> None:
        """Send nobody else to it for a while."""
        self.trouble = error
        self._until = until

    @property
    def apart_until(self) -> float:
        """When it may be sent somebody again."""
        return self._until
