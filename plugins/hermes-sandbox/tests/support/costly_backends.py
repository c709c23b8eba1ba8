"""A plugin with backends on which a sandbox costs something, or that fail in ways of their own."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from hermes_core import hookimpl
from hermes_core.specs import BackendSpec, Ref
from hermes_sandbox.local.backend import LocalBackend
from hermes_sandbox.local.options import LocalOptions

NAMES = ("dear", "made_of_dear", "raises", "exits", "sticks", "cheap")


def _spec(name):
    target = f"costly_backends:{name.title().replace('_', '')}"
    costs = {"trying_costs": "spends a coin"} if name == "dear" else {}
    return BackendSpec(name=name, target=target, summary="Costs or fails.", isolation=("none",), **costs)


@hookimpl
def hermes_backends():
    return [_spec(name) for name in NAMES]


class CoinOptions(LocalOptions):
    purse: str = ""
    """A file that every coin is written to."""


class Cheap(LocalBackend):
    """Is free, and works."""

    declaration = _spec("cheap")
    Options = CoinOptions
    options: CoinOptions


class Dear(Cheap):
    """Costs a coin for each sandbox."""

    declaration = _spec("dear")

    async def open(self, spec):
        with Path(self.options.purse or "/dev/null").open("a") as purse:
            purse.write("o")
        return await super().open(spec)


class Parts(BaseModel):
    member: str = "dear"

    def parts(self):
        return {"member": Ref(kind="backend", name=self.member)}


class MadeOfDear(LocalBackend):
    """Is free but for what it is made of."""

    declaration = _spec("made_of_dear")
    Options = Parts

    def __init__(self, options):
        super().__init__(LocalOptions())
        self.parts = options


class Raises(Cheap):
    """Fails at something that it does not know of."""

    declaration = _spec("raises")

    async def open(self, spec):
        return {}["node"]


class Exits(Cheap):
    """Ends the process, if nobody prevents that."""

    declaration = _spec("exits")

    async def check(self, spec):
        raise SystemExit(3)


class Sticks(Cheap):
    """Works, and cannot be closed."""

    declaration = _spec("sticks")

    async def aclose(self):
        await super().aclose()
        raise ConnectionError("the line is dead")
