"""A tool that does nothing, so that only the framework is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_core import hookimpl
from hermes_core.contracts.tool import ToolResult
from hermes_core.specs import ToolsetSpec, ToolSpec

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@hookimpl
def hermes_tools() -> Iterable[ToolSpec]:
    """Declare the tool."""
    return [
        ToolSpec(
            name="noop",
            summary="Do nothing.",
            description="Does nothing.",
            target="noop_plugin:Noop",
            toolset="noop",
            parameters=PARAMETERS,
            needs_sandbox=False,
            side_effects="none",
        )
    ]


@hookimpl
def hermes_toolsets() -> Iterable[ToolsetSpec]:
    """Declare its toolset."""
    return [ToolsetSpec(name="noop", summary="The tool that does nothing.", tools=("noop",))]


class Noop:
    """The tool."""

    async def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        """Do nothing."""
        del arguments, context
        return ToolResult(content="{}")
