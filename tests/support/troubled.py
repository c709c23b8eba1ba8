"""A local plugin whose listener raises and whose backend cannot be opened."""

from __future__ import annotations

import sys

from hermes_core import hookimpl
from hermes_core.specs import BackendSpec


@hookimpl
def hermes_tool_called(event):
    sys.exit("listener")


@hookimpl
def hermes_backends():
    return [BackendSpec(name="broken_backend", summary="Cannot be opened.", target="troubled:Broken")]


class Broken:
    async def check(self, spec):
        return None

    async def open(self, spec):
        raise RuntimeError("boom")

    async def aclose(self):
        return None
