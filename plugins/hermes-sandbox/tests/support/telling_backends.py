"""A plugin with backends whose sandboxes say of the bound on their processes what each is made for."""

from __future__ import annotations

from hermes_core import hookimpl
from hermes_core.specs import BackendSpec
from hermes_sandbox.local.backend import LocalBackend

SAID = {
    "strict": {"limits": {"pids": "1024, by a keeper"}},
    "loose": {"limits": {"pids": "none: nobody looks after them"}},
    "silent": {"limits": {}},
    "sharing": {"limits": {}, "lacks": {"private_tmp": "all of them share /tmp"}},
}


def _spec(name):
    return BackendSpec(name=name, target=f"telling_backends:{name.title()}", summary="Says something of processes.")


@hookimpl
def hermes_backends():
    return [_spec(name) for name in SAID]


class Told:
    """A sandbox that says something else of itself than what holds."""

    def __init__(self, inner, said):
        self._inner = inner
        self.provenance = {**inner.provenance, **said}

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self._inner.aclose()


class Strict(LocalBackend):
    declaration = _spec("strict")

    async def open(self, spec):
        return Told(await super().open(spec), SAID[self.declaration.name])


class Loose(Strict):
    declaration = _spec("loose")


class Silent(Strict):
    declaration = _spec("silent")


class Sharing(Strict):
    declaration = _spec("sharing")
