"""Engines that change the outcomes of rollouts."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, ClassVar

from engine_passing import Passing


class RunsTwice(Passing):
    async def run_rollout(self, rollout):
        await self.inner.run_rollout(dataclasses.replace(rollout, provenance={}))
        return await self.inner.run_rollout(rollout)


class LosesCounts(Passing):
    async def run_rollout(self, rollout):
        outcome = await self.inner.run_rollout(rollout)
        return dataclasses.replace(outcome, counters={**outcome.counters, "completion_tokens": 0})


class MendsTexts(Passing):
    async def run_rollout(self, rollout):
        outcome = await self.inner.run_rollout(rollout)
        return dataclasses.replace(outcome, final_response=outcome.final_response.replace("\0", ""))


class RoundsParts(Passing):
    async def run_rollout(self, rollout):
        outcome = await self.inner.run_rollout(rollout)
        parts = {name: round(value, 6) for name, value in outcome.reward_parts.items()}
        return dataclasses.replace(outcome, reward_parts=parts)


class DrawsItsOwnSeeds(Passing):
    async def run_rollout(self, rollout):
        return await self.inner.run_rollout(dataclasses.replace(rollout, seed=rollout.seed + 1))


class ForgetsTheSandbox(Passing):
    async def open(self, run):
        await super().open(dataclasses.replace(run, config={**run.config, "sandbox": {}}))


class HeadOfLine(Passing):
    """Returns outcomes in the order in which rollouts began."""

    before: asyncio.Future[None] | None = None

    async def run_rollout(self, rollout):
        before, self.before = self.before, asyncio.get_running_loop().create_future()
        done = self.before
        try:
            outcome = await self.inner.run_rollout(rollout)
            if before is not None:
                await asyncio.wait({before})
            return outcome
        finally:
            done.set_result(None)


class MixesUp(Passing):
    """Returns the result of one rollout for another that runs at the same time."""

    def __init__(self):
        super().__init__()
        self.answers = []
        self.running = 0

    async def run_rollout(self, rollout):
        self.running += 1
        mixed = self.running > 1
        try:
            outcome = await self.inner.run_rollout(rollout)
        finally:
            self.running -= 1
        self.answers.append(outcome.final_response)
        return dataclasses.replace(outcome, final_response=self.answers[-2:][0]) if mixed else outcome


class ThreeAtATime(Passing):
    def __init__(self):
        super().__init__()
        self.room = asyncio.Semaphore(3)

    async def run_rollout(self, rollout):
        async with self.room:
            return await self.inner.run_rollout(rollout)


class SmallCapacity(Passing):
    capacity = 3


class FractionalCapacity(Passing):
    capacity = 4.0


class RemembersOutcomes(Passing):
    """Treats a second attempt as a repeated request."""

    def __init__(self):
        super().__init__()
        self.known = {}

    async def run_rollout(self, rollout):
        if rollout.rollout_id in self.known:
            return dataclasses.replace(self.known[rollout.rollout_id], attempt=rollout.attempt)
        self.known[rollout.rollout_id] = await self.inner.run_rollout(rollout)
        return self.known[rollout.rollout_id]


class StripsProvenance(Passing):
    async def run_rollout(self, rollout):
        return dataclasses.replace(await self.inner.run_rollout(rollout), provenance={"engine": {"name": "somebody"}})


class NamesNoNodes(Passing):
    @property
    def provenance(self):
        return {"workers": [{"node": ""}]}


class OnePerProcess(Passing):
    """Keeps its state in its class."""

    shared: ClassVar[dict[str, Any]] = {}

    async def open(self, run):
        await super().open(run)
        self.shared["engine"] = self.inner

    async def run_rollout(self, rollout):
        return await self.shared["engine"].run_rollout(rollout)
