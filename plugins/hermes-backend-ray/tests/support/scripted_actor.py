"""An actor handle without a cluster, which a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ray.exceptions import RayActorError


class Method:
    """A method of an actor handle."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self._call(*arguments)


class ScriptedActor:
    """A worker that sends the messages in `told`, and records its calls in `begun` and `cancelled`."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, bytes]] = []
        self.cancelled: list[str] = []
        self.closed = False
        self.is_dead = False
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self.begin, self.cancel = Method(self._begin), Method(self._cancel)
        self.news, self.close = Method(self._news), Method(self._close)
        self.confirms = True
        self.ends: tuple[bool, Any] = (True, None)

    def tell(self, *news: Any) -> None:
        self._told.put_nowait([news])

    def die(self) -> None:
        self.is_dead = True
        self._told.put_nowait(None)

    async def _begin(self, key: str, rollout: bytes) -> None:
        if self.is_dead:
            raise RayActorError
        self.begun.append((key, rollout))

    async def _cancel(self, key: str) -> None:
        self.cancelled.append(key)
        if self.confirms:
            self.tell("cancelled", key, None)

    async def _news(self, _wait: float) -> list[Any]:
        batch: list[Any] | None = await self._told.get()
        if batch is None:
            raise RayActorError
        return batch

    async def _close(self) -> tuple[bool, Any]:
        if self.is_dead:
            raise RayActorError
        self.closed = True
        return self.ends
