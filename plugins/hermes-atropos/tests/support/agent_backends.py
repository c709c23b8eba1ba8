"""A local plugin with backends under the names of slot pools, which record their options and sandbox specs."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

from hermes_core import hookimpl
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.tool import ToolResult
from hermes_core.specs import BackendSpec, ToolSpec

NAMES = ("nomad", "modal", "docker")


@hookimpl
def hermes_backends():
    return [BackendSpec(name=name, target="agent_backends:Pool", summary="x", images=True) for name in NAMES]


@hookimpl
def hermes_tools():
    fields = {"summary": "x", "description": "x", "parameters": {"type": "object", "properties": {}}}
    target = "agent_backends:Postcard"
    return [
        ToolSpec(name="postcard", target=target, toolset="post", needs_sandbox=False, side_effects="external", **fields)
    ]


class Pool:
    class Options(BaseModel):
        model_config = ConfigDict(extra="allow")

    def __init__(self, options):
        self.options = options

    async def check(self, spec):
        return None

    async def open(self, spec):
        about = {"image": spec.image, "network": spec.network, "isolation": spec.isolation}
        error = BackendError(json.dumps({"options": self.options.model_dump(), **about}))
        error.retryable = False
        raise error

    async def aclose(self):
        return None


class Postcard:
    async def call(self, arguments, context):
        return ToolResult(content="sent")
