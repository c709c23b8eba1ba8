"""Registry of an environment's tools: those of installed plugins and those that it defines, which are called here."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.contracts.errors import BackendError, ConfigError
from hermes_core.discovery import Registry, load_plugins
from hermes_core.specs import ToolSpec
from hermes_core.tooling import select_tools
from hermes_tools.agent_tools.tool import Tool, ToolCall, ToolResult, ToolSchema


class InstalledTool(Tool):
    """A tool of an installed plugin, which runs in each rollout's sandbox."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    @property
    def schema(self) -> ToolSchema:
        """Return the schema that the plugin declares."""
        spec = self.spec
        return ToolSchema(spec.name, spec.description, spec.parameters, external=spec.side_effects == "external")

    async def execute(self, **_arguments: Any) -> ToolResult:
        """Return an error: the tool needs the sandbox of a rollout."""
        problem = f"{self.spec.name} runs in a rollout's sandbox; call it with the hook's exec_tool"
        return ToolResult(success=False, error=problem)


class ToolRegistry:
    """The tools of one environment, by name."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def register(self, tool: Tool) -> None:
        """Add a tool. It replaces a tool of the same name."""
        self._tools[tool.schema.name] = tool

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        """Return the tools that are available, in the order in which they were added."""
        return [tool for tool in self._tools.values() if tool.is_available()[0]]

    def get_schemas(self) -> list[ToolSchema]:
        """Return the schemas of the available tools, which the model sees."""
        return [tool.schema for tool in self.list_tools()]

    def get_prompt_description(self) -> str:
        """Return one line per tool, with its name and description."""
        return "\n".join(f"- {schema.name}: {schema.description}" for schema in self.get_schemas())

    def get_prompt_tool_definitions_json(self) -> str:
        """Return the JSON for the `<tools>` block of the prompt."""
        return json.dumps([schema.to_dict() for schema in self.get_schemas()], ensure_ascii=False)

    async def execute(self, call: ToolCall, **about: Any) -> ToolResult:
        """Call a tool. Errors are returned in the result; `about` is passed where the tool's signature names it."""
        tool = self.get(call.name)
        if tool is None:
            return ToolResult(success=False, error=f"Unknown tool: {call.name}", uniq_id=call.uniq_id)
        return await execute_tool(tool, call, about)


async def execute_tool(tool: Tool, call: ToolCall, about: Mapping[str, Any]) -> ToolResult:
    """Call a tool of an environment. An exception becomes the result's error, except for a `BackendError`."""
    named = inspect.signature(tool.execute).parameters
    extra = {name: value for name, value in about.items() if name in named and name not in call.arguments}
    try:
        result: Any = await tool.execute(**{**call.arguments, **extra})
    except BackendError:
        raise  # a missing sandbox is not the model's mistake
    except Exception as error:  # noqa: BLE001 - the boundary to an environment's own tool: the model reads the error
        return ToolResult(success=False, error=f"{type(error).__name__}: {error}", uniq_id=call.uniq_id)
    if not isinstance(result, ToolResult):
        found = type(result).__name__
        raise ConfigError(f"tool {call.name!r}: expected a ToolResult of {ToolResult.__module__}, got {found}")
    return ToolResult(result.success, result.output, result.error, result.metadata, call.uniq_id)


def build_tool_registry(
    enabled_toolsets: Sequence[str] | None = None,
    disabled_toolsets: Sequence[str] | None = None,
    tool_server_url: str | None = None,
    *,
    registry: Registry | None = None,
) -> ToolRegistry:
    """Return the installed tools of some toolsets, by default of the toolset `default`.

    Tools that act outside the sandbox are included if `tool_server_url` is `inprocess`; those of a tool server are
    added when the environment is set up. `registry` holds the plugins, by default all that are installed.
    """
    selection = select_tools(
        load_plugins() if registry is None else registry,
        enabled_toolsets=enabled_toolsets or ["default"],
        disabled_toolsets=disabled_toolsets,
    )
    tools = ToolRegistry()
    for spec in selection.specs:
        if spec.side_effects != "external" or tool_server_url == "inprocess":
            tools.register(InstalledTool(spec))
    return tools
