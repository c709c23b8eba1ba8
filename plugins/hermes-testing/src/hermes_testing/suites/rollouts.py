"""Fixtures shared by the suites for tools and verifiers: a real runtime on the local backend, and rollouts in it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout import RolloutContext, Runtime
from hermes_testing.suites.base import ComponentSuite

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

OpenRollout = Callable[[], AbstractAsyncContextManager[RolloutContext]]


class RolloutBase(ComponentSuite):
    """Fixtures: `runtime`, `rollout` (opens the context of another rollout), `context` (an open one)."""

    @pytest_asyncio.fixture
    async def runtime(self, registry: Registry) -> AsyncIterator[Runtime]:
        """A runtime with the core's local backend."""
        async with Runtime(registry) as runtime:
            yield runtime

    @pytest.fixture
    def rollout(self, runtime: Runtime) -> OpenRollout:
        """Open a rollout with its own sandbox, prepared by the suite's `prepare`."""
        numbers = itertools.count()

        @asynccontextmanager
        async def open_rollout() -> AsyncIterator[RolloutContext]:
            name = f"conformance-{next(numbers)}"
            async with runtime.open_sandbox(SandboxSpec(rollout_id=name)) as sandbox:
                context = RolloutContext(runtime, rollout_id=name, sandbox=sandbox)
                await self.prepare(context)
                yield context

        return open_rollout

    @pytest_asyncio.fixture
    async def context(self, rollout: OpenRollout) -> AsyncIterator[RolloutContext]:
        """The context of one open rollout."""
        async with rollout() as context:
            yield context

    async def prepare(self, context: Any) -> None:
        """Prepare the sandbox in which a rollout starts; does nothing by default."""
