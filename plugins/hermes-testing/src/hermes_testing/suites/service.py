"""The suite every runtime service passes; a service keeps state of tools for all rollouts of a runtime."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout import RolloutContext, Runtime
from hermes_testing.suites.rollouts import RolloutBase

if TYPE_CHECKING:
    from hermes_core.discovery import Registry


class ServiceSuite(RolloutBase):
    """Behaviour of a runtime service, obtained as by a tool: from the context of a rollout in a real sandbox.

    Set `plugin` and `component`, and implement `use`, which stores something in a rollout's view, and `holds`, which
    says whether anything that `use` stored is there.
    """

    kind = "service"

    async def use(self, view: Any) -> None:
        """Store something in a rollout's view of the service."""
        raise NotImplementedError

    async def holds(self, view: Any) -> bool:
        """Tell whether something that `use` stored is in a rollout's view."""
        raise NotImplementedError

    async def test_it_has_the_contract_s_methods(self, runtime: Runtime) -> None:
        """`for_rollout` is a plain function; `release` and `aclose` are coroutine functions."""
        service = runtime.service(self.component)
        assert not inspect.iscoroutinefunction(service.for_rollout)
        assert inspect.iscoroutinefunction(service.release)
        assert inspect.iscoroutinefunction(service.aclose)

    async def test_two_runtimes_have_two(self, registry: Registry, runtime: Runtime, context: RolloutContext) -> None:
        """The state of one is not in the other, although the rollouts have the same name."""
        await self.use(self._view(context))
        async with Runtime(registry) as other:
            assert other.service(self.component) is not runtime.service(self.component)
            async with other.open_sandbox(SandboxSpec(rollout_id=context.rollout_id)) as sandbox:
                there = RolloutContext(other, rollout_id=context.rollout_id, sandbox=sandbox)
                assert not await self.holds(self._view(there))

    async def test_asking_for_it_starts_nothing(self, runtime: Runtime, context: RolloutContext) -> None:
        """No task is started: many rollouts never use it."""
        before = asyncio.all_tasks()
        runtime.service(self.component)
        self._view(context)
        assert asyncio.all_tasks() == before

    async def test_what_a_rollout_leaves_is_there(self, context: RolloutContext) -> None:
        """In every view of the same rollout."""
        assert not await self.holds(self._view(context))
        await self.use(self._view(context))
        assert await self.holds(self._view(context))

    async def test_another_rollout_does_not_see_it(self, runtime: Runtime, context: RolloutContext) -> None:
        """And cannot reach it."""
        await self.use(self._view(context))
        async with self._rollout(runtime, "another") as another:
            assert not await self.holds(self._view(another))

    async def test_it_goes_with_its_sandbox(self, runtime: Runtime) -> None:
        """A second attempt of a rollout under the same name finds no state of the first."""
        async with self._rollout(runtime, "again") as first:
            await self.use(self._view(first))
        async with self._rollout(runtime, "again") as second:
            assert not await self.holds(self._view(second))

    async def test_the_end_of_another_rollout_changes_nothing(self, runtime: Runtime, context: RolloutContext) -> None:
        """Whether that rollout had used the service or not."""
        await self.use(self._view(context))
        async with self._rollout(runtime, "another") as another:
            await self.use(self._view(another))
        await runtime.service(self.component).release("never-seen")
        assert await self.holds(self._view(context))

    async def test_the_end_of_another_sandbox_changes_nothing(self, runtime: Runtime, context: RolloutContext) -> None:
        """A rollout's verifier has another sandbox, under the rollout's name."""
        await self.use(self._view(context))
        async with self._rollout(runtime, context.rollout_id):
            pass
        assert await self.holds(self._view(context))

    async def test_releasing_twice_is_fine(self, runtime: Runtime, context: RolloutContext) -> None:
        """The first time by the sandbox, the second time by the rollout."""
        await self.use(self._view(context))
        service = runtime.service(self.component)
        await service.release(context.rollout_id, context.sandbox.id)
        await service.release(context.rollout_id)
        assert not await self.holds(self._view(context))

    async def test_closing_leaves_no_task(self, registry: Registry) -> None:
        """Not even those in use; and closing twice is fine."""
        before = asyncio.all_tasks()
        async with Runtime(registry) as runtime:
            sandbox = await runtime.backend.open(SandboxSpec(rollout_id="r1"))
            await self.use(self._view(RolloutContext(runtime, rollout_id="r1", sandbox=sandbox)))
            service = runtime.service(self.component)
        await service.aclose()
        for _ in range(100):  # a cancelled task ends when the event loop runs it
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    def _view(self, context: RolloutContext) -> Any:
        return context.service(self.component)

    @contextlib.asynccontextmanager
    async def _rollout(self, runtime: Runtime, name: str) -> AsyncIterator[RolloutContext]:
        async with runtime.open_sandbox(SandboxSpec(rollout_id=name)) as sandbox:
            yield RolloutContext(runtime, rollout_id=name, sandbox=sandbox)
