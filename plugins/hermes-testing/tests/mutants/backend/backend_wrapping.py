"""Base classes of the broken backends: real sandboxes of the local backend that pass every call on."""

from __future__ import annotations

import re

from impatience import Impatient

from hermes_testing.watching import eventually, runs_inside


class Passing:
    """Passes everything on to a real object."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.aclose()


class Backend:
    """Wraps every sandbox of a real backend."""

    def __init__(self, inner, sandbox_class):
        self.inner = inner
        self.sandbox_class = sandbox_class

    async def check(self, spec):
        await self.inner.check(spec)

    async def open(self, spec):
        return self.sandbox_class(await self.inner.open(spec))

    async def reclaim(self, handle):
        await self.inner.reclaim(handle)

    # The real backend must call the methods that a suite replaces.
    @property
    def create(self):
        return self.inner.create

    @create.setter
    def create(self, create):
        self.inner.create = create

    async def aclose(self):
        await self.inner.aclose()


class Local(Impatient):
    """A mutant of the local backend."""

    plugin, component = "hermes_sandbox.plugin", "local"
    backend_class, sandbox_class = Backend, Passing
    crowd = 3

    def make(self, registry):
        return self.backend_class(super().make(registry), self.sandbox_class)


class WithProcesses(Passing):
    """A sandbox whose processes are wrapped too."""

    processes_class = Passing

    def __init__(self, inner):
        super().__init__(inner)
        self.processes = self.processes_class(inner.processes)


def with_processes(processes):
    """Return the class of a sandbox with such processes."""
    return type(f"With{processes.__name__}", (WithProcesses,), {"processes_class": processes})


async def run_on(sandbox, command):
    """Run a command in the background, and wait until it runs."""
    await sandbox.exec(f"({command}) >/dev/null 2>&1 &")
    token = re.search(r"600\.\d+", command)
    assert token is None or await eventually(lambda: runs_inside(sandbox, token[0]), seconds=60)
