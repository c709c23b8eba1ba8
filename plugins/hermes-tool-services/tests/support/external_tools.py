"""A plugin with tools that act outside the sandbox, for the tests of the tool server."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.tool import ToolResult
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ToolSpec

SECRET = "https://lab:hunter2@db.internal:5432/x?token=abc123 of /srv/lab/.netrc refused"
"""A secret in an exception's text that the model must not see."""
_TEXT = {"type": "string"}


def _spec(name: str, target: str, *, requires: tuple[str, ...] = (), side_effects: Any = "external") -> ToolSpec:
    return ToolSpec(
        name=name,
        summary=f"{name}.",
        description=f"The tool {name}.",
        target=f"external_tools:{target}",
        toolset="outside",
        needs_sandbox=False,
        side_effects=side_effects,
        requires=requires,
        parameters={
            "type": "object",
            "properties": {"query": _TEXT},
            "required": ["query"],
            "additionalProperties": False,
        },
    )


class Echo:
    """Asynchronous; takes the facts about its caller."""

    async def call(
        self, arguments: dict[str, Any], context: Any, trajectory_id: str = "", slot_id: str = ""
    ) -> ToolResult:
        return ToolResult(content=f"{arguments['query']}/{trajectory_id}/{slot_id}/{context.rollout_id}")


class Plain:
    """Asynchronous; takes no facts about its caller."""

    async def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        return ToolResult(content=arguments["query"])


class Slow:
    """Synchronous, and blocks its thread until the file that `query` names is there."""

    def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        gate = Path(arguments["query"])
        Path(f"{gate}.begun-{threading.get_ident()}").touch()
        while not gate.exists():
            time.sleep(0.01)
        return ToolResult(content=threading.current_thread().name)


class Failing:
    """Raises what tools raise."""

    async def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        match arguments["query"]:
            case "exit":
                raise SystemExit(3)
            case "nothing":
                return None  # type: ignore[return-value]  # what is tested
            case "error":
                return ToolResult(content="{}", error="the tool says no")
            case "secret":
                raise ConnectionError(SECRET)
            case "ours":
                raise ConfigError(SECRET)
            case _:
                raise RuntimeError("it broke")


@hookimpl
def hermes_tools() -> list[ToolSpec]:
    """Declare the tools."""
    return [
        _spec("echo", "Echo"),
        _spec("plain", "Plain"),
        _spec("slow", "Slow"),
        _spec("failing", "Failing"),
        _spec("without_key", "Plain", requires=("env:A_KEY_THAT_IS_NOT_SET",)),
        _spec("inside", "Plain", side_effects="none"),
    ]
