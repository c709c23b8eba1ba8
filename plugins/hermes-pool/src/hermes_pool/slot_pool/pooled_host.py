"""One host of a pool, and its state."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Hashable
from enum import StrEnum
from typing import Any

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.backends import SlotHost


class HostState(StrEnum):
    """The state of a host; only a ready one gives out slots."""

    STARTING = "starting"
    READY = "ready"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    """It gives out no new slots, and ends when its last slot is given back."""
    CLOSING = "closing"


class PooledHost(SlotHost):
    """A host with its state, and the times of its start, its last use and its last check."""

    def __init__(self, key: Hashable, limit: int) -> None:
        super().__init__(limit)
        self.id = uuid.uuid4().hex[:8]
        self.key = key
        self.state = HostState.STARTING
        self.began = 0.0
        self.is_late = False
        """Whether its start takes so long that it no longer counts as one of the concurrent starts."""
        self.starting: asyncio.Task[None] | None = None
        self.given_up: float | None = None
        """When its start was given up; None if it was not."""
        self.idle_since = 0.0
        self.checked_at = 0.0
        self.checking: asyncio.Task[None] | None = None
        self._ping: asyncio.Task[tuple[dict[str, Any], bytes]] | None = None

    @property
    def free(self) -> int:
        """The number of slots that it would give out now."""
        usable = self.state is HostState.READY and self.lost is None
        return max(0, self.limit - len(self.seats)) if usable else 0

    @property
    def is_coming(self) -> bool:
        """Whether it is starting, and not late."""
        return self.state is HostState.STARTING and not self.is_late

    @property
    def serves_further(self) -> bool:
        """Whether it gives out second slots to trajectories that have one, also when it is full or makes room."""
        is_open = self.state in {HostState.READY, HostState.DRAINING} and not self.is_retired
        return is_open and self.lost is None and len(self.seats) < 2 * self.limit

    def retire(self) -> None:
        """Give out no new slots, and end when the last one is given back."""
        super().retire()
        self.make_room()

    def make_room(self) -> None:
        """Give out no new slots except second ones, without which a trajectory cannot give back its first; then end."""
        if self.state is not HostState.CLOSING:
            self.state = HostState.DRAINING

    async def check(self, timeout: float) -> str | None:
        """Check the host and its agent, and return the problem; None if there is none."""
        try:
            async with asyncio.timeout(timeout):
                await self.sandbox_host.examine()
        except TimeoutError:
            return f"it could not be checked within {timeout:g} s"
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, the host is unhealthy
            return error.message if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
        ping = self._ping = self._ping or asyncio.ensure_future(self.agent.request({"op": "ping"}))
        # Not cancelled when it is late: an agent that leaves a cancelled request unanswered counts as lost, although
        # calls in its slots may still work.
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
        """Close the agent and remove the host."""
        if self.checking is not None:
            self.checking.cancel()
        await super().end()
        if self._ping is not None:
            with contextlib.suppress(SandboxLostError, OSError):
                await self._ping
