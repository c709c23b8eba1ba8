"""The reference engine: two workers, each a local process that reads its work from its input."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import os
import pickle
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts import errors
from hermes_core.contracts.errors import EngineLostError, UserError


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    places: int = 2


class Desk:
    """One worker."""

    flags = ()

    def __init__(self, engine, number):
        self.engine = engine
        self.place = {"name": type(engine).__name__, "worker": f"d{number}", "node": os.uname().nodename}
        self.taken = 0
        self.loss = None
        self._pending = {}
        self._keys = itertools.count()

    async def start(self):
        program = Path(__file__).with_name("desk_worker.py")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), *self.flags, stdin=-1, stdout=-1, limit=2**26,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(item for item in sys.path if item)},
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self):
        while line := await self._process.stdout.readline():
            self.hear(*pickle.loads(base64.b64decode(line)))
        self.lose()

    def lose(self):
        self.loss = "its process has ended"
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self.lost())

    def lost(self):
        return EngineLostError(f"worker {self.place['worker']} was lost", place=self.place)

    def hear(self, kind, whose, content):
        if kind == "turned":
            self.engine.run.on_turn(whose)
        elif kind == "event":
            self.engine.run.registry.fire(whose, content)
        elif not (future := self._pending[whose]).done():
            future.set_result((kind, content))

    async def ask(self, order, *arguments):
        key = next(self._keys)
        future = self._pending[key] = asyncio.get_running_loop().create_future()
        if self.loss is not None:
            raise self.lost()
        self._tell(order, key, *arguments)
        try:
            kind, content = await asyncio.shield(future)
        except asyncio.CancelledError:
            await run_uncancelled(self._cancelled(key, future))
            raise
        finally:
            del self._pending[key]
        if kind == "raised":
            raise rebuilt(content)
        return content

    async def _cancelled(self, key, future):
        self._tell("cancel", key)
        await asyncio.wait({future})
        with contextlib.suppress(EngineLostError):
            future.result()

    def _tell(self, *order):
        self._process.stdin.write(base64.b64encode(pickle.dumps(order)) + b"\n")

    async def aclose(self):
        if "_process" not in vars(self):
            return
        self._process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()
        await self._process.wait()
        await self._listening


def rebuilt(description):
    name, message, hint = description
    return getattr(errors, name)(message, hint=hint)


class Desks:
    """Each rollout goes to the worker that runs the fewest."""

    Options = Options
    desk_class = Desk

    def __init__(self, options):
        self.desks = [self.desk_class(self, number) for number in range(2)]
        self._places = options.places

    @property
    def capacity(self):
        return self._places * len(self.desks)

    @property
    def provenance(self):
        workers = [{**desk.place, "lost": desk.loss} for desk in self.desks]
        return {"workers": workers, "lost_workers": sum(desk.loss is not None for desk in self.desks)}

    async def open(self, run):
        self.run = run
        values = {"run_id": run.run_id, "config": dict(run.config), "tasks": run.tasks, "api_key": run.api_key}
        values["config"] |= {"engine": "local", "engine_options": {}}
        values["hooks"] = [hook for hook in run.registry.event_hooks if run.registry.listens(hook)]
        await asyncio.gather(*(self._open(desk, values) for desk in self.desks))

    async def _open(self, desk, values):
        await desk.start()
        await desk.ask("open", self.run.registry.settings.extra, values)

    async def refusals(self, tasks):
        found = await self.desks[0].ask("refusals", list(tasks))
        return {id_: rebuilt(error) for id_, error in found.items()}

    def free(self):
        left = [desk for desk in self.desks if desk.loss is None]
        if not left:
            raise UserError("no worker is left")
        return min(left, key=lambda desk: desk.taken)

    async def run_rollout(self, rollout):
        desk = self.free()
        desk.taken += 1
        try:
            return await desk.ask("run_rollout", place_at_desk(rollout, desk))
        finally:
            desk.taken -= 1

    async def aclose(self):
        await asyncio.gather(*(desk.aclose() for desk in self.desks))


def place_at_desk(rollout, desk):
    return dataclasses.replace(rollout, provenance={**rollout.provenance, "engine": desk.place})
