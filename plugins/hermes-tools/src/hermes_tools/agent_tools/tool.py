"""Tools for agents that write calls as text: a `ToolCall` in, a `ToolResult` out; the names are hermes-agent's.

`hermes_core.contracts.tool` has the contract of a plugin's tool.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.model import encode
from hermes_core.specs import ToolSpec

# These tags in a tool's output could be mistaken for the protocol's own. Escaped, the JSON has the same value.
_MARK: Final = re.compile(r"<(?=/?(?:tools|tool_call|tool_response|think)\b)")
_ESCAPED: Final = r"\\u003c"


@dataclass(slots=True)
class ToolSchema:
    """Description of a tool for the model.

    `parameters` is a JSON schema of type object, or only its `properties`, with `required` beside it. An `external`
    tool runs outside the sandbox.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    required: list[str] | None = None
    external: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the tool's entry in the prompt's `<tools>` list."""
        return {"name": self.name, "description": self.description, "parameters": self.json_schema(), "required": None}

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        if self.parameters.get("type") == "object":
            return dict(self.parameters)
        schema: dict[str, Any] = {"type": "object", "properties": dict(self.parameters)}
        return {**schema, "required": list(self.required)} if self.required else schema

    def spec(self) -> ToolSpec:
        """Return the same tool as a `ToolSpec`, for the dispatcher."""
        return ToolSpec(
            name=self.name,
            summary=self.description.partition("\n")[0] or self.name,
            description=self.description,
            parameters=self.json_schema(),
            target="hermes_tools.agent_tools.tool:Tool",
            toolset="environment",
            needs_sandbox=False,
            side_effects="external" if self.external else "none",
        )


@dataclass(slots=True)
class ToolCall:
    """A tool call. `raw_text` is the model's text of the call, `uniq_id` the id that the result repeats."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    raw_text: str = ""
    uniq_id: str = ""


@dataclass(slots=True)
class ToolResult:
    """Result of a tool call. `metadata` (exit code, …) is for the environment; the model sees it only on request."""

    success: bool
    output: str = ""
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    uniq_id: str = ""

    def to_dict(self, *, with_metadata: bool = True) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        answer: dict[str, Any] = {"success": self.success, "output": self.output}
        if self.error is not None:
            answer["error"] = self.error
        if with_metadata and self.metadata:
            answer["metadata"] = dict(self.metadata)
        return {**answer, "uniq_id": self.uniq_id} if self.uniq_id else answer

    def to_xml(self, *, with_metadata: bool = False) -> str:
        """Return the result as the model reads it, with the protocol's tags escaped inside it."""
        text = encode(self.to_dict(with_metadata=with_metadata)).decode()
        return f"<tool_response>{_MARK.sub(_ESCAPED, text)}</tool_response>"


class Tool(ABC):
    """A tool that an environment defines. It runs in the environment's process, on its event loop."""

    @property
    @abstractmethod
    def schema(self) -> ToolSchema:
        """The tool's description for the model."""

    @abstractmethod
    async def execute(self, **arguments: Any) -> ToolResult:
        """Run the tool. `trajectory_id` and `task_id` are passed if the signature names them."""

    def is_available(self) -> tuple[bool, str | None]:
        """Return whether the tool can be used here, and the reason if not. An unavailable tool is not offered."""
        return True, None
