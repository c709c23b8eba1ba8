"""Engines that change the outcomes of rollouts."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, ClassVar

from engine_passing import Passing


class PlaysTwice(Passing):
    async def play(self, rollout):
        await self.inner.play(dataclasses.replace(rollout, provenance={}))
        return await self.inner.play(rollout)


class LosesCounts(Passing):
    async def play(self, rollout):
        outcome = await self.inner.play(rollout)
        return dataclasses.replace(outcome, counters={**outcome.counters, "completion_tokens": 0})


class MendsTexts(Passing):
    async def play(self, rollout):
        outcome = await self.inner.play(rollout)
        return dataclasses.replace(outcome, final_response=outcome.final_response.replace("\0", ""))


class RoundsParts(Passing):
    async def play(self, rollout):
        outcome = await self.inner.play(rollout)
        parts = {name: round(value, 6) for name, value in outcome.reward_parts.items()}
        return dataclasses.replace(outcome, reward_parts=parts)


class DrawsItsOwnSeeds(Passing):
    async def play(self, rollout):
        return await self.inner.play(dataclasses.replace(rollout, seed=rollout.seed + 1))


class ForgetsTheSandbox(Passing):
    async def open(self, run):
        await super().open(dataclasses.replace(run, config={**run.config, "sandbox": {}}))


class HeadOfLine(Passing):
    """Returns outcomes in the order in which rollouts began."""

    before: asyncio.Future[None] | None = None

    async def play(self, rollout):
        before, self.before = self.before, asyncio.get_running_loop().create_future()
        done = self.before
        try:
            outcome = await self.inner.play(rollout)
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
        self.playing = 0

    async def play(self, rollout):
        self.playing += 1
        mixed = self.playing > 1
        try:
            outcome = await self.inner.play(rollout)
        finally:
            self.playing -= 1
        self.answers.append(outcome.final_response)
        return dataclasses.replace(outcome, final_response=self.answers[-2:][0]) if mixed else outcome


class ThreeAtATime(Passing):
    def __init__(self):
        super().__init__()
        self.room = asyncio.Semaphore(3)

    async def play(self, rollout):
        async with self.room:
            return await self.inner.play(rollout)


class SmallCapacity(Passing):
    capacity = 3


class FractionalCapacity(Passing):
    capacity = 4.0


class RemembersOutcomes(Passing):
    """Treats a second attempt as a repeated request."""

    def __init__(self):
        super().__init__()
        self.known = {}

    async def play(self, rollout):
        if rollout.rollout_id in self.known:
            return dataclasses.replace(self.known[rollout.rollout_id], attempt=rollout.attempt)
        self.known[rollout.rollout_id] = await self.inner.play(rollout)
        return self.known[rollout.rollout_id]


class StripsProvenance(Passing):
    async def play(self, rollout):
        return dataclasses.replace(await self.inner.play(rollout), provenance={"engine": {"name": "somebody"}})


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

    async def play(self, rollout):
        return await self.shared["engine"].play(rollout)
