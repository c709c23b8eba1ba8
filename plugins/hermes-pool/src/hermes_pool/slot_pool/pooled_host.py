"""One host of a pool, and the seats that its users have in it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Any

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.backends import AgentClient, MakeHost, SandboxHost, SlotRequest


class HostState(StrEnum):
    """What a host is there for at the moment; only a ready one gives slots."""

    STARTING = "starting"
    READY = "ready"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    """It gives no slot any more, and ends with its last user."""
    CLOSING = "closing"


class PoolSeat:
    """The right to one slot of a host. `number` is the fencing token: no other holder ever has it in this host."""

    def __init__(
        self, owner: PooledHost, number: int, rollout_id: str | None, gone: Callable[[PoolSeat], None]
    ) -> None:
        self.owner = owner
        self.number = number
        self.rollout_id = rollout_id
        self.closing = False
        self._gone = gone

    @property
    def host(self) -> SandboxHost:
        """The place that it is in."""
        return self.owner.place

    @property
    def client(self) -> AgentClient:
        """The agent of that place."""
        return self.owner.agent

    def spoil(self) -> None:
        """Give nobody else a slot in this host: something is left in it that cannot be ended."""
        self.owner.spoil()

    async def release(self) -> None:
        """Give it back; whoever waits longest has the room at once. Safe to call twice."""
        if not self.closing:
            self.closing = True
            self._gone(self)


class PooledHost:
    """A host with its state, who uses it, and since when nobody does."""

    def __init__(self, key: Hashable, limit: int) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.key = key
        self.limit = limit
        self.state = HostState.STARTING
        self.seats: dict[int, PoolSeat] = {}
        self.given = 0
        self.began = 0.0
        self.is_late = False
        """Whether it has been starting for so long that it keeps no place among those that are."""
        self.starting: asyncio.Task[None] | None = None
        self.given_up: float | None = None
        """When its start was given up, if it was."""
        self.is_yielding = False
        """Whether it takes nobody new only because others wait for a host of another kind."""
        self.idle_since = 0.0
        self.asked_at = 0.0
        self.asking: asyncio.Task[None] | None = None
        self.complaint = ""
        self._place: SandboxHost | None = None
        self._client: AgentClient | None = None
        self._ping: asyncio.Task[tuple[dict[str, Any], bytes]] | None = None

    @property
    def place(self) -> SandboxHost:
        """What the backend has made."""
        assert self._place is not None
        return self._place

    @property
    def agent(self) -> AgentClient:
        """The agent in it."""
        assert self._client is not None
        return self._client

    @property
    def lost(self) -> str | None:
        """Why its agent cannot be asked any more; None while it can, or has not been started yet."""
        return None if self._client is None else self._client.lost

    @property
    def free(self) -> int:
        """How many slots it would give now."""
        usable = self.state is HostState.READY and self.lost is None
        return max(0, self.limit - len(self.seats)) if usable else 0

    @property
    def is_coming(self) -> bool:
        """Whether it is starting, and has not been for too long."""
        return self.state is HostState.STARTING and not self.is_late

    @property
    def serves_further(self) -> bool:
        """Whether it gives a second slot to a trajectory that has one, also when it is full; who yields has to."""
        is_open = self.state is HostState.READY or (self.state is HostState.DRAINING and self.is_yielding)
        return is_open and self.lost is None and len(self.seats) < 2 * self.limit

    def spoil(self) -> None:
        """Take nobody new any more."""
        self.is_yielding = False
        if self.state is not HostState.CLOSING:
            self.state = HostState.DRAINING

    def make_room(self) -> None:
        """Take nobody new but those who cannot leave before they have had a second slot, and end with the last."""
        self.spoil()
        self.is_yielding = True

    def seat(self, rollout_id: str | None, gone: Callable[[PoolSeat], None]) -> PoolSeat:
        """Give a slot away."""
        self.given += 1
        seat = self.seats[self.given] = PoolSeat(self, self.given, rollout_id, gone)
        return seat

    async def begin(self, make_host: MakeHost, request: SlotRequest) -> None:
        """Make the place and start its agent; leaves nothing when that fails or is cancelled."""
        self._place = await make_host()
        try:
            stream = await self._place.start_agent()
            self._client = await request.greet(stream, marker=self._place.mark or uuid.uuid4().hex[:16])
        except BaseException:
            try:
                await run_uncancelled(self.end())
            except Exception as left:  # noqa: BLE001 - the backend's code; why it did not start is the error to be told
                self.complaint = f"what was begun cannot be removed: {left}"
            raise

    async def ask(self, timeout: float) -> str | None:
        """Return what is wrong with it, None if nothing is."""
        try:
            async with asyncio.timeout(timeout):
                await self.place.examine()
        except TimeoutError:
            return f"it could not be looked at within {timeout:g} s"
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, the host is not well
            return error.message if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
        ping = self._ping = self._ping or asyncio.ensure_future(self.agent.request({"op": "ping"}))
        # Not cancelled when it is late: an agent that leaves a cancelled request unanswered counts as lost, and it is
        # not for us to take it from those whose calls still work.
        await asyncio.wait((ping,), timeout=timeout)
        if not ping.done():
            return f"its agent did not answer within {timeout:g} s"
        self._ping = None
        try:
            ping.result()
        except (SandboxLostError, OSError) as error:
            return str(error)
        return None

    async def end(self) -> None:
        """Close the agent and remove the place."""
        if self.asking is not None:
            self.asking.cancel()
        if self._client is not None:
            await self._client.aclose()
        if self._ping is not None:
            with contextlib.suppress(SandboxLostError, OSError):
                await self._ping
        if self._place is not None:
            try:
                await self._place.stop_all()
            finally:
                await self._place.destroy()
