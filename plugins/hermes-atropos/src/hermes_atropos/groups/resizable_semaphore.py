"""A semaphore with a limit that can change while it is in use."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class ResizableSemaphore:
    """At most `limit` concurrent holders, in order of arrival; a smaller limit does not affect current holders."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.used = 0

    @property
    def limit(self) -> int:
        """The maximum number of holders."""
        return self._limit

    def resize(self, limit: int) -> None:
        """Change the limit; at least one stays."""
        self._limit = max(1, limit)
        self._wake()

    async def __aenter__(self) -> None:
        if self.used < self._limit and not self._waiting:
            self.used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # our turn came at the same moment: pass it on
                self.used -= 1
                self._wake()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.used -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.used < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.used += 1
                turn.set_result(None)
