"""Engines that refuse, fail and end in another way."""

from __future__ import annotations

import asyncio
import dataclasses

from engine_passing import Passing
from pydantic import BaseModel, ConfigDict

from hermes_core.contracts.errors import EngineLostError, HermesError, ModelUnreachableError, UserError


class Lenient(Passing):
    class Options(BaseModel):
        model_config = ConfigDict(extra="allow")

    def __init__(self, options):
        super().__init__()


class OpensLater(Passing):
    """Validates the config only at the first rollout."""

    opened = False

    async def open(self, run):
        self.run = run

    async def begin(self):
        if not self.opened:
            self.opened = True
            await self.inner.open(self.run)

    async def refusals(self, tasks):
        await self.begin()
        return await super().refusals(tasks)

    async def run_rollout(self, rollout):
        await self.begin()
        return await super().run_rollout(rollout)


class ChecksNoModel(Passing):
    """Does not check the model's server."""

    async def open(self, run):
        try:
            await super().open(run)
        except HermesError as error:
            if not isinstance(error, ModelUnreachableError):
                raise


class RaisesItsOwn(Passing):
    async def open(self, run):
        try:
            await super().open(run)
        except HermesError as error:
            raise RuntimeError(str(error)) from error


class ClosesOnlyWhatIsOpen(Passing):
    async def aclose(self):
        if self.inner._runtime is None:
            raise RuntimeError("it is not open")
        await super().aclose()


class RefusesNothing(Passing):
    async def refusals(self, tasks):
        return {}


class RefusesAll(Passing):
    async def refusals(self, tasks):
        refused = await self.inner.refusals(tasks)
        return {task.id: next(iter(refused.values())) for task in tasks} if refused else {}


class RefusesSetUps(Passing):
    async def refusals(self, tasks):
        mine = {task.id: EngineLostError("tasks with files are not for this engine") for task in tasks if task.files}
        return {**mine, **await self.inner.refusals(tasks)}


class OneFailureEndsAll(Passing):
    async def run_rollout(self, rollout):
        outcome = await self.inner.run_rollout(rollout)
        if outcome.reward_status == "error":
            raise UserError("a rollout has failed")
        return outcome


class SwallowsFatalErrors(Passing):
    async def run_rollout(self, rollout):
        try:
            return await self.inner.run_rollout(rollout)
        except HermesError as error:
            raise EngineLostError(error.message) from error


class ForgetsTheKey(Passing):
    async def open(self, run):
        await super().open(dataclasses.replace(run, api_key=None))


class WritesTheKey(Passing):
    async def run_rollout(self, rollout):
        outcome = await self.inner.run_rollout(rollout)
        return dataclasses.replace(outcome, reward_detail=f"run with {self.run.api_key}")


class CancelsLater(Passing):
    """Returns from a cancelled rollout before that has ended."""

    def __init__(self):
        super().__init__()
        self.left = set()

    async def run_rollout(self, rollout):
        running = asyncio.ensure_future(self.inner.run_rollout(rollout))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.left.add(running)
            asyncio.get_running_loop().call_later(2, running.cancel)
            raise


class CancelsAll(Passing):
    """Cancelling one rollout ends all of them."""

    def __init__(self):
        super().__init__()
        self.running = set()

    async def run_rollout(self, rollout):
        running = asyncio.ensure_future(self.inner.run_rollout(rollout))
        self.running.add(running)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            for task in self.running:
                task.cancel()
            await asyncio.gather(*self.running, return_exceptions=True)
            raise
        finally:
            self.running.discard(running)


class KeepsPlaces(Passing):
    """A cancelled rollout keeps its place."""

    def __init__(self):
        super().__init__()
        self.places = asyncio.Semaphore(4)

    async def run_rollout(self, rollout):
        await self.places.acquire()
        outcome = await self.inner.run_rollout(rollout)
        self.places.release()
        return outcome


class ClosesNothing(Passing):
    async def aclose(self):
        pass


class ClosesLater(CancelsLater):
    """Defers cancelling and closing."""

    async def aclose(self):
        closing = asyncio.create_task(self.close())
        self.left.add(closing)

    async def close(self):
        await asyncio.sleep(2)
        await super().aclose()
