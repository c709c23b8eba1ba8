"""Engines with workers and one broken behaviour."""

from __future__ import annotations

import contextlib
import dataclasses

from desks import Desk, Desks

from hermes_core.contracts.errors import EngineLostError
from hermes_core.contracts.rollout import RewardStatus
from hermes_core.rollout import failed_outcome


class _Workers(Desks):
    is_broken = True


class _DragsAll(Desk):
    def lose(self):
        for desk in self.engine.desks:
            Desk.lose(desk)
            desk.loss = None if desk is not self else desk.loss


class LosesAll(_Workers):
    """The end of one worker ends all of them."""

    desk_class = _DragsAll


class BlamesNobody(_Workers):
    """A lost rollout is an outcome with a reward of 0."""

    async def run_rollout(self, rollout):
        try:
            return await super().run_rollout(rollout)
        except EngineLostError as error:
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
    """Waits forever for a dead worker."""

    desk_class = _Deaf


class _Stays(Desk):
    flags = ("--stays",)

    async def aclose(self):
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await super().aclose()


class KeepsRunning(_Workers):
    """Its workers outlive the caller."""

    desk_class = _Stays


class FirstWorkerOnly(_Workers):
    """Has two workers and uses one."""

    def free(self):
        return self.desks[0]
