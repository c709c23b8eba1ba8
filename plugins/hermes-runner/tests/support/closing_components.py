"""Engines, a backend, a model and a sink that work, but fail when they are closed."""

from __future__ import annotations

from hermes_core import hookimpl
from hermes_core.contracts.errors import BackendError
from hermes_core.specs import BackendSpec, EngineSpec, ModelSpec, SinkSpec
from hermes_models.providers import Oracle
from hermes_runner.run.local_engine import LocalEngine
from hermes_sandbox.local import LocalBackend


@hookimpl
def hermes_engines():
    return [
        EngineSpec(name=name, summary=name, target=f"closing_components:{name.title()}")
        for name in ("exits", "slips", "mute")
    ]


@hookimpl
def hermes_backends():
    return [BackendSpec(name="sticky", summary="sticky", target="closing_components:Sticky", isolation=("none",))]


@hookimpl
def hermes_models():
    return [ModelSpec(name="sticky", summary="sticky", target="closing_components:StickyModel", embedded=True)]


@hookimpl
def hermes_sinks():
    return [SinkSpec(name="sticky", summary="sticky", target="closing_components:StickySink")]


class Exits:
    """Raises SystemExit when it is closed."""

    capacity = None
    provenance = {"sandboxes_left": 2}  # noqa: RUF012 - a component of a test

    def __init__(self):
        self._inner = LocalEngine()
        self.is_closed = False

    async def open(self, run):
        await self._inner.open(run)

    async def refusals(self, tasks):
        return await self._inner.refusals(tasks)

    async def run_rollout(self, rollout):
        return await self._inner.run_rollout(rollout)

    async def aclose(self):
        await self._inner.aclose()
        raise SystemExit(7)


class Slips(Exits):
    """Raises an error that is no `HermesError` when it is closed."""

    async def aclose(self):
        await self._inner.aclose()
        raise KeyError("worker")


class Mute(Slips):
    """Cannot tell what it left, as its provenance fails too."""

    @property
    def provenance(self):
        if self.is_closed:
            raise LookupError("gone")
        return {}

    async def aclose(self):
        self.is_closed = True
        await super().aclose()


class Sticky(LocalBackend):
    """Raises a `BackendError` with a hint when it is closed."""

    declaration = hermes_backends()[0]

    async def aclose(self):
        await super().aclose()
        raise BackendError("node n1 is down", hint="`sinfo -R` shows why; then hermes-core sandboxes gc")


class StickyModel(Oracle):
    """Creates clients that cannot close their connection."""

    def client(self, settings):
        client = super().client(settings)

        async def aclose():
            raise ConnectionError("the line is dead")

        client.aclose = aclose
        return client


class StickySink:
    """Takes every outcome, and cannot close its file."""

    def open(self, folder):
        del folder

    def write(self, outcome):
        del outcome

    def close(self):
        raise OSError(5, "Input/output error")
