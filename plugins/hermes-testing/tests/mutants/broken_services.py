"""The plugin of the broken services, and the services: notes that rollouts leave."""

from __future__ import annotations

import asyncio

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ServiceSpec


@hookimpl
def hermes_runtime_services():
    kinds = [value for value in globals().values() if isinstance(value, type) and issubclass(value, Notes)]
    return [
        ServiceSpec(name=kind.__name__.lower(), summary="Notes.", target=f"broken_services:{kind.__name__}")
        for kind in kinds
    ]


class View:
    def __init__(self, service, context):
        self.service = service
        self.rollout_id = context.rollout_id
        self.sandbox_id = context.sandbox.id

    def add(self):
        key = (self.rollout_id, self.sandbox_id)
        self.service.notes[key] = asyncio.get_running_loop().create_task(asyncio.sleep(600))

    def has(self):
        return any(rollout_id == self.rollout_id for rollout_id, _ in self.service.notes)


class Notes:
    View = View

    def __init__(self, runtime):
        self.notes = {}

    def for_rollout(self, context):
        return self.View(self, context)

    async def release(self, rollout_id, sandbox_id=None):
        for key in [key for key in self.notes if self.belongs(key, rollout_id, sandbox_id)]:
            self.notes.pop(key).cancel()

    def belongs(self, key, rollout_id, sandbox_id):
        return key[0] == rollout_id and sandbox_id in {None, key[1]}

    async def aclose(self):
        for task in self.notes.values():
            task.cancel()
        self.notes.clear()


class LacksAnEnd(Notes):
    def __init__(self, runtime):
        super().__init__(runtime)
        # The loader looks at the class; only the suite sees what an object has in its place.
        self.aclose = lambda: Notes.aclose(self)


KEPT: dict[tuple[str, str], asyncio.Task[None]] = {}


class IsSharedByRuntimes(Notes):
    def __init__(self, runtime):
        self.notes = KEPT


class StartsAtOnce(Notes):
    def __init__(self, runtime):
        super().__init__(runtime)
        self.task = asyncio.get_running_loop().create_task(asyncio.sleep(600))

    async def aclose(self):
        self.task.cancel()
        await super().aclose()


class Forgets(Notes):
    class View(Notes.View):
        def add(self):
            return None


class TellsOthers(Notes):
    class View(Notes.View):
        def has(self):
            return bool(self.service.notes)


class KeepsForEver(Notes):
    async def release(self, rollout_id, sandbox_id=None):
        return None


class LetsAllGo(Notes):
    def belongs(self, key, rollout_id, sandbox_id):
        return True


class ForgetsTheSandbox(Notes):
    def belongs(self, key, rollout_id, sandbox_id):
        return key[0] == rollout_id


class KnowsWhomItReleases(Notes):
    async def release(self, rollout_id, sandbox_id=None):
        if not self.View(self, _Known(rollout_id)).has():
            raise KeyError(rollout_id)
        await super().release(rollout_id, sandbox_id)


class _Known:
    def __init__(self, rollout_id):
        self.rollout_id = rollout_id
        self.sandbox = self
        self.id = ""


class LeavesTasks(Notes):
    async def aclose(self):
        self.notes.clear()


class ClosesOnce(Notes):
    async def aclose(self):
        await super().aclose()
        del self.notes
