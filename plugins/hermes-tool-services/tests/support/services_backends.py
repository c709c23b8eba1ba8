"""Backends and tools that the tests of the services share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox.local import LocalBackend


def local_backend(tmp_path: Path) -> LocalBackend:
    """Return the real backend of this machine, with its leases in the test's own folder."""
    backend = LocalBackend()
    backend.lease_dir = tmp_path / "leases"
    return backend


class BoundedBackend:
    """The local backend with a limited number of places, for which it is waited for a limited time."""

    def __init__(self, inner: LocalBackend, *, places: int, patience: float = 60.0) -> None:
        self._inner = inner
        self._patience = patience
        self._free = asyncio.Semaphore(places)
        self.open_now = 0
        self.most_open = 0
        self.declaration = inner.declaration

    async def check(self, spec: SandboxSpec) -> None:
        await self._inner.check(spec)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise BackendError("no place was free in time") from None
        try:
            sandbox: Any = await self._inner.open(spec)
        except BaseException:
            self._free.release()
            raise
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        return cast("Sandbox", _Bounded(sandbox, self))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def left(self) -> None:
        self.open_now -= 1
        self._free.release()


class _Bounded:
    def __init__(self, inner: Any, owner: BoundedBackend) -> None:
        self._inner = inner
        self._owner = owner
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def aclose(self) -> None:
        await self._inner.aclose()
        if not self._is_closed:
            self._is_closed = True
            self._owner.left()
