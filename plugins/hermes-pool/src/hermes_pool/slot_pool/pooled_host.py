"""One host of a pool, and what it is there for at the moment."""

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
    """What a host is there for at the moment; only a ready one gives slots."""

    STARTING = "starting"
    READY = "ready"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    """It gives no slot any more, and ends with its last user."""
    CLOSING = "closing"


class PooledHost(SlotHost):
    """A host with its state, and since when nobody uses it."""

    def __init__(self, key: Hashable, limit: int) -> None:
        super().__init__(limit)
        self.id = uuid.uuid4().hex[:8]
        self.key = key
        self.state = HostState.STARTING
        self.began = 0.0
        self.is_late = False
        """Whether it has been starting for so long that it keeps no place among those that are."""
        self.starting: asyncio.Task[None] | None = None
        self.given_up: float | None = None
        """When its start was given up, if it was."""
        self.idle_since = 0.0
        self.asked_at = 0.0
        self.asking: asyncio.Task[None] | None = None
        self._ping: asyncio.Task[tuple[dict[str, Any], bytes]] | None = None

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
        """Whether it gives a second slot to a trajectory that has one, also when it is full; who makes room has to."""
        is_open = self.state in {HostState.READY, HostState.DRAINING} and not self.is_retired
        return is_open and self.lost is None and len(self.seats) < 2 * self.limit

    def retire(self) -> None:
        """Take no new slots any more, and end after the last one is given back."""
        super().retire()
        self.make_room()

    def make_room(self) -> None:
        """Take nobody new but those who cannot leave before they have had a second slot, and end with the last."""
        if self.state is not HostState.CLOSING:
            self.state = HostState.DRAINING

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
        await super().end()
        if self._ping is not None:
            with contextlib.suppress(SandboxLostError, OSError):
                await self._ping
