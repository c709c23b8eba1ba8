"""A rollout engine as a third party would write it: two desks in this process, each a separate `LocalEngine`."""

from __future__ import annotations

import pickle

from pydantic import BaseModel

from hermes_core import hookimpl
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import BackendError, EngineLostError, UserError
from hermes_core.specs import BackendSpec, EngineSpec
from hermes_runner.run.local_engine import LocalEngine
from hermes_sandbox.local import LocalBackend


@hookimpl
def hermes_engines():
    targets = {"desks": "Desks", "bent": "Bent", "half": "Half"}
    return [
        EngineSpec(name=name, summary=name, target=f"engine_components:{target}") for name, target in targets.items()
    ]


@hookimpl
def hermes_backends():
    return [BackendSpec(name="narrow", summary="narrow", target="engine_components:Narrow", isolation=("none",))]


class Options(BaseModel):
    trouble: str = ""
    refuses: str = ""
    capacity: int | None = None


class Desks:
    """Runs rollouts at two desks in turn; `trouble` happens to the first attempt of each rollout."""

    Options = Options

    def __init__(self, options):
        self._options = options
        self._desks = [LocalEngine(), LocalEngine()]
        self._rollouts = 0
        self.at_once = self.most = 0

    @property
    def capacity(self):
        return self._options.capacity

    @property
    def provenance(self):
        return {"desks": 2, "rollouts": self._rollouts, "most": self.most}

    async def open(self, run: EngineRun):
        if self._options.trouble == "shut":
            raise UserError("the desks are shut", hint="come back tomorrow")
        for desk in self._desks:
            await desk.open(run)

    async def refusals(self, tasks):
        refuses = self._options.refuses
        return {task.id: BackendError(f"no desk has {refuses}") for task in tasks if refuses in task.sandbox}

    async def run_rollout(self, rollout):
        number = self._rollouts % 2
        self._rollouts += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if rollout.attempt == 1:
                self._trouble(number)
            return pickle.loads(pickle.dumps(await self._desks[number].run_rollout(rollout)))
        finally:
            self.at_once -= 1

    def _trouble(self, number):
        if self._options.trouble == "lost":
            raise EngineLostError("the desk collapsed", place={"name": "desks", "worker": number})
        if self._options.trouble == "bug":
            raise KeyError("desk")
        if self._options.trouble == "exit":
            raise SystemExit(3)
        if self._options.trouble == "fatal":
            raise UserError("the building is on fire")

    async def aclose(self):
        for desk in self._desks:
            await desk.aclose()


class Bent(Desks):
    """Returns something else than the outcome of the rollout."""

    async def run_rollout(self, rollout):
        return await super().run_rollout(_other(rollout)) if self._options.trouble == "other" else None


def _other(rollout):
    import dataclasses

    return dataclasses.replace(rollout, rollout_id="ro_other")


class Narrow(LocalBackend):
    """Has room for three sandboxes, and counts how many are open."""

    declaration = hermes_backends()[0]

    async def open(self, spec):
        sandbox = await super().open(spec)
        assert len(self._open) <= 3
        return sandbox

    def capacity(self, spec):
        return 3 if spec.network == "full" else None


class Half:
    """Satisfies no contract."""

    async def open(self, run): ...
