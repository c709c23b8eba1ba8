"""A plugin with backends that note that they were built, with which options, and what they were asked.

`first` and `second` keep leases, `plain` keeps none, and `made` is built by a function, which does not tell.
"""

from __future__ import annotations

from pydantic import BaseModel, SecretStr

from hermes_core import hookimpl
from hermes_core.contracts.errors import BackendError
from hermes_core.specs import BackendSpec

NOTES: list[tuple] = []
"""What happened since the test began, in order: the backend, what happened to it, and its key or the handle."""
DURING: list = []
"""What is called, once, while a sandbox is being removed."""


def _spec(name, target):
    return BackendSpec(name=name, target=f"asking_backends:{target}", summary="Notes.", is_remote=True)


@hookimpl
def hermes_backends():
    return [_spec("first", "First"), _spec("second", "Second"), _spec("plain", "Plain"), _spec("made", "make")]


class Options(BaseModel):
    key: SecretStr | None = None


class Plain:
    """Keeps no leases."""

    Options = Options
    name = "plain"

    def __init__(self, options):
        self.key = options.key and options.key.get_secret_value()
        NOTES.append((self.name, "built", self.key))

    async def check(self, spec):
        """Accept everything."""

    async def open(self, spec):
        raise BackendError("there are no sandboxes here")

    async def aclose(self):
        NOTES.append((self.name, "closed", self.key))


class First(Plain):
    name, leases = "first", None

    def lease_with(self, store):
        self.leases = store

    async def reclaim(self, handle):
        NOTES.append((self.name, "reclaimed", handle["place"]))
        while DURING:
            DURING.pop()()
        if handle["place"] == "locked" and self.key is None:
            raise BackendError("it is locked")

    async def sweep(self, *, remove=True):
        NOTES.append((self.name, "swept" if remove else "asked", self.key))
        return []


class Second(First):
    name = "second"


class Made(Plain):
    name = "made"


def make(options):
    return Made(options)


make.Options = Options  # type: ignore[attr-defined] # what the registry looks for at a target
