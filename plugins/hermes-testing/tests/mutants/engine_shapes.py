"""Engines with one behaviour changed: of the local one where that will do, of the reference's workers where not."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any, ClassVar

from desks import Desk, Desks
from pydantic import BaseModel

from hermes_core.contracts.errors import EngineLostError, HermesError
from hermes_core.runner.local_engine import LocalEngine


class Passing:
    """Passes everything on to a local engine."""

    is_broken = True

    def __init__(self):
        self.inner = LocalEngine()

    @property
    def capacity(self):
        return None

    @property
    def provenance(self):
        return {}

    async def open(self, run):
        self.run = run
        await self.inner.open(run)

    async def refusals(self, tasks):
        return await self.inner.refusals(tasks)

    async def play(self, rollout):
        return await self.inner.play(rollout)

    async def aclose(self):
        await self.inner.aclose()


class Told:
    """A registry whose events are told by somebody else."""

    def __init__(self, registry, tell):
        self._registry = registry
        self._tell = tell

    def __getattr__(self, name):
        return getattr(self._registry, name)

    def fire(self, hook, event):
        self._tell(self._registry.fire, hook, event)


class _Telling(Passing):
    """Has events and turns told by itself."""

    def tell(self, fire, hook, event):
        fire(hook, event)

    def turned(self, rollout):
        self.run.turned(rollout)

    async def open(self, run):
        self.run = run
        registry: Any = Told(run.registry, self.tell)
        await self.inner.open(dataclasses.replace(run, registry=registry, turned=self.turned))


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
        text = outcome.final_response.encode("utf-8", "replace").decode()
        return dataclasses.replace(outcome, final_response=text)


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
    """Gives back outcomes in the order in which rollouts began."""

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
    """Gives the answer of one rollout to another that is played at the same time."""

    def __init__(self):
        super().__init__()
        self.answers = []
        self.playing = 0

    async def play(self, rollout):
        self.playing += 1
        mixed = self.playing > 3
        try:
            outcome = await self.inner.play(rollout)
        finally:
            self.playing -= 1
        self.answers.append(outcome.final_response)
        return dataclasses.replace(outcome, final_response=self.answers[0]) if mixed else outcome


class OneAtATime(Passing):
    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()

    async def play(self, rollout):
        async with self.lock:
            return await self.inner.play(rollout)


class SmallCapacity(Passing):
    capacity = 2


class ImpatientCapacity(Passing):
    capacity = 0.5


class RemembersOutcomes(Passing):
    """Takes a second attempt for a repeated question."""

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
    """Keeps what it has opened in its class."""

    shared: ClassVar[dict[str, Any]] = {}

    async def open(self, run):
        await super().open(run)
        self.shared["engine"] = self.inner

    async def play(self, rollout):
        return await self.shared["engine"].play(rollout)


class TellsNothing(_Telling):
    def tell(self, fire, hook, event):
        pass


class TellsTwice(_Telling):
    def tell(self, fire, hook, event):
        fire(hook, event)
        fire(hook, event)


class TellsAtTheEnd(_Telling):
    """Keeps events until the rollout has ended."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def tell(self, fire, hook, event):
        self.kept.append((fire, hook, event))
        if hook == "hermes_rollout_finished":
            mine = [item for item in self.kept if item[2].rollout_id == event.rollout_id]
            self.kept = [item for item in self.kept if item[2].rollout_id != event.rollout_id]
            for told, name, what in mine:
                told(name, what)


class TellsBackwards(TellsAtTheEnd):
    def tell(self, fire, hook, event):
        self.kept.append((fire, hook, event))
        if hook == "hermes_rollout_finished":
            mine = [item for item in self.kept if item[2].rollout_id == event.rollout_id]
            self.kept = [item for item in self.kept if item[2].rollout_id != event.rollout_id]
            for told, name, what in reversed(mine):
                told(name, what)


class TellsNoReward(_Telling):
    def tell(self, fire, hook, event):
        fire(hook, dataclasses.replace(event, reward=None) if hook == "hermes_rollout_scored" else event)


class TellsOnlyTheFirstEnd(_Telling):
    def __init__(self):
        super().__init__()
        self.ended = set()

    def tell(self, fire, hook, event):
        if hook == "hermes_rollout_finished":
            if event.rollout_id in self.ended:
                return
            self.ended.add(event.rollout_id)
        fire(hook, event)


def elsewhere(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


class TellsFromAThread(_Telling):
    def tell(self, fire, hook, event):
        elsewhere(fire, hook, event)


class CountsNoTurns(_Telling):
    def turned(self, rollout):
        pass


class CountsTurnsFromAThread(_Telling):
    def turned(self, rollout):
        elsewhere(self.run.turned, rollout)


class CountsTurnsAtTheEnd(_Telling):
    def __init__(self):
        super().__init__()
        self.turns = []

    def turned(self, rollout):
        self.turns.append(rollout)

    async def play(self, rollout):
        outcome = await super().play(rollout)
        for turn in self.turns:
            self.run.turned(turn)
        return outcome


class Lenient(Passing):
    class Options(BaseModel):
        pass

    def __init__(self, options):
        super().__init__()


class OpensLater(Passing):
    """Looks at the config when the first rollout comes."""

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

    async def play(self, rollout):
        await self.begin()
        return await super().play(rollout)


class ChecksNoModel(Passing):
    """Does not ask whether the model's server is there."""

    async def open(self, run):
        try:
            await super().open(run)
        except HermesError as error:
            if "127.0.0.1:9" not in str(error):
                raise


class RaisesItsOwn(Passing):
    async def open(self, run):
        try:
            await super().open(run)
        except HermesError as error:
            raise RuntimeError(str(error)) from error


class ClosesOnlyWhatIsOpen(Passing):
    async def aclose(self):
        if self.inner._player is None:
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
    async def play(self, rollout):
        outcome = await self.inner.play(rollout)
        if outcome.reward_status == "error":
            from hermes_core.contracts.errors import UserError

            raise UserError("a rollout has failed")
        return outcome


class SwallowsFatalErrors(Passing):
    async def play(self, rollout):
        try:
            return await self.inner.play(rollout)
        except HermesError as error:
            raise EngineLostError(error.message) from error


class ForgetsTheKey(Passing):
    async def open(self, run):
        await super().open(dataclasses.replace(run, api_key=None))


class WritesTheKey(Passing):
    @property
    def provenance(self):
        return {"key": self.run.api_key}


class CancelsLater(Passing):
    """Returns from a cancelled rollout before that has ended."""

    def __init__(self):
        super().__init__()
        self.left = set()

    async def play(self, rollout):
        playing = asyncio.ensure_future(self.inner.play(rollout))
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            self.left.add(playing)
            asyncio.get_running_loop().call_later(0.3, playing.cancel)
            raise


class CancelsAll(Passing):
    """Ends everything that is played, with one rollout."""

    def __init__(self):
        super().__init__()
        self.playing = set()

    async def play(self, rollout):
        playing = asyncio.ensure_future(self.inner.play(rollout))
        self.playing.add(playing)
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            for task in self.playing:
                task.cancel()
            await asyncio.gather(*self.playing, return_exceptions=True)
            raise
        finally:
            self.playing.discard(playing)


class KeepsPlaces(Passing):
    """A cancelled rollout keeps its place."""

    def __init__(self):
        super().__init__()
        self.places = asyncio.Semaphore(4)

    async def play(self, rollout):
        await self.places.acquire()
        outcome = await self.inner.play(rollout)
        self.places.release()
        return outcome


class ClosesNothing(Passing):
    async def aclose(self):
        pass


class _Workers(Desks):
    is_broken = True


class _DragsAll(Desk):
    def lose(self):
        for desk in self.engine.desks:
            Desk.lose(desk)
            desk.loss = None if desk is not self else desk.loss


class LosesAll(_Workers):
    """One worker's end is every worker's."""

    desk_class = _DragsAll


class BlamesNobody(_Workers):
    """A lost rollout is an outcome with a reward of 0."""

    async def play(self, rollout):
        try:
            return await super().play(rollout)
        except EngineLostError as error:
            from hermes_core.contracts.rollout import RewardStatus
            from hermes_core.rollout.record import failed_outcome

            lost = failed_outcome(rollout, error)
            return dataclasses.replace(lost, reward=0.0, reward_status=RewardStatus.OK)


class _Nowhere(Desk):
    def lost(self):
        return EngineLostError("a worker was lost")


class SaysNotWhere(_Workers):
    desk_class = _Nowhere


class CountsNoLosses(_Workers):
    @property
    def provenance(self):
        return {**super().provenance, "lost_workers": 0}


class _Deaf(Desk):
    def lose(self):
        pass


class NoticesNothing(_Workers):
    """Waits for ever for a worker that is no more."""

    desk_class = _Deaf


class _Stays(Desk):
    flags = ("--stays",)

    async def aclose(self):
        self._process.kill()
        await super().aclose()


class PlaysOn(_Workers):
    """Its workers outlive the caller."""

    desk_class = _Stays


class FirstWorkerOnly(_Workers):
    """Knows two workers and uses one."""

    def free(self):
        return self.desks[0]
