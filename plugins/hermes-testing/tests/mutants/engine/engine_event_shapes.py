"""Engines that report events of rollouts differently."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from engine_passing import Passing


class Told:
    """A registry whose events something else reports."""

    def __init__(self, registry, tell):
        self._registry = registry
        self._tell = tell

    def __getattr__(self, name):
        return getattr(self._registry, name)

    def fire(self, hook, event):
        self._tell(self._registry.fire, hook, event)


class _Telling(Passing):
    """Reports events and turns itself."""

    def tell(self, fire, hook, event):
        fire(hook, event)

    def on_turn(self, rollout):
        self.run.on_turn(rollout)

    async def open(self, run):
        self.run = run
        registry: Any = Told(run.registry, self.tell)
        await self.inner.open(dataclasses.replace(run, registry=registry, on_turn=self.on_turn))


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
    def on_turn(self, rollout):
        pass


class CountsTurnsFromAThread(_Telling):
    def on_turn(self, rollout):
        elsewhere(self.run.on_turn, rollout)


class CountsTurnsAtTheEnd(_Telling):
    def __init__(self):
        super().__init__()
        self.turns = []

    def on_turn(self, rollout):
        self.turns.append(rollout)

    async def run_rollout(self, rollout):
        outcome = await super().run_rollout(rollout)
        for turn in self.turns:
            self.run.on_turn(turn)
        return outcome
