"""An engine that passes everything on to a local one; the base of the broken ones."""

from __future__ import annotations

from hermes_runner import LocalEngine


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

    async def run_rollout(self, rollout):
        return await self.inner.run_rollout(rollout)

    async def aclose(self):
        await self.inner.aclose()
