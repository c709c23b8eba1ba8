"""A shared host with its agent, and the seats in it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from hermes_core.cancellation import run_uncancelled
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import SlotRequest


class HostSeat:
    """The right to one slot of a host. `number` is the fencing token: it is never reused in this host."""

    def __init__(
        self, owner: SlotHost, number: int, rollout_id: str | None, gone: Callable[[HostSeat], Awaitable[None]]
    ) -> None:
        self.number = number
        self.rollout_id = rollout_id
        self._owner = owner
        self._gone: Callable[[HostSeat], Awaitable[None]] | None = gone

    @property
    def host(self) -> SandboxHost:
        """Its host."""
        return self._owner.sandbox_host

    @property
    def client(self) -> AgentClient:
        """The agent of that host."""
        return self._owner.agent

    def retire_host(self) -> None:
        """Give no further slots in this host, which ends after its last slot is given back."""
        self._owner.retire()

    async def release(self) -> None:
        """Give it back. Safe to call twice."""
        gone, self._gone = self._gone, None
        if gone is not None:
            del self._owner.seats[self.number]
            await gone(self)


class SlotHost:
    """A shared host, its agent, and its seats."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seats: dict[int, HostSeat] = {}
        self.given = 0
        self.is_retired = False
        """Whether it takes no new slots: something is left in it, it has had enough of them, or its start failed."""
        self.complaint = ""
        """Its last problem."""
        self._sandbox_host: SandboxHost | None = None
        self._client: AgentClient | None = None
        self._is_ended = False

    @property
    def sandbox_host(self) -> SandboxHost:
        """The backend's host."""
        assert self._sandbox_host is not None
        return self._sandbox_host

    @property
    def agent(self) -> AgentClient:
        """The agent in it."""
        assert self._client is not None
        return self._client

    @property
    def lost(self) -> str | None:
        """Why its agent is lost; None while it is usable, or not started yet."""
        return None if self._client is None else self._client.lost

    def retire(self) -> None:
        """Take no new slots any more."""
        self.is_retired = True

    def seat(self, rollout_id: str | None, gone: Callable[[HostSeat], Awaitable[None]]) -> HostSeat:
        """Give out a slot; `gone` is called when it is given back."""
        self.given += 1
        seat = self.seats[self.given] = HostSeat(self, self.given, rollout_id, gone)
        return seat

    async def begin(self, make_host: MakeHost, request: SlotRequest) -> None:
        """Make the host and start its agent; leave nothing when that fails or is cancelled."""
        self._sandbox_host = await make_host()
        try:
            stream = await self._sandbox_host.start_agent()
            self._client = await request.greet(stream, marker=self._sandbox_host.mark or uuid.uuid4().hex[:16])
        except BaseException:
            try:
                await run_uncancelled(self.end())
            except asyncio.CancelledError as cancelled:
                self._complain(cancelled.__cause__)
                raise
            except Exception as left:  # noqa: BLE001 - the backend's code; why it did not start is the error to be told
                self._complain(left)
            raise

    def _complain(self, left: BaseException | None) -> None:
        if left is not None:
            self.complaint = f"the unfinished host cannot be removed: {left}"

    async def end(self) -> None:
        """Close the agent and remove the host; done once."""
        if self._is_ended:
            return
        self._is_ended = True
        if self._client is not None:
            await self._client.aclose()
        if self._sandbox_host is not None:
            try:
                await self._sandbox_host.stop_all()
            finally:
                await self._sandbox_host.destroy()
