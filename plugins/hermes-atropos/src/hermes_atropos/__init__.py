"""Environments for an Atropos trainer; atroposlib is imported when a name below is first used.

ATROPOS.md, beside the package's README, maps hermes-agent's modules to these.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_atropos.agent.agent import AtroposAgent
    from hermes_atropos.agent.env import AgentEnv, AgentEnvConfig
    from hermes_atropos.author_code.bridge import bridged
    from hermes_atropos.author_code.legacy_loop import HermesAgentLoop, ToolContext
    from hermes_atropos.base_env import HermesAgentBaseEnv
    from hermes_atropos.compat import (
        APIServerConfig,
        BaseEnvConfig,
        EvalHandlingEnum,
        ScoredDataGroup,
        ScoredDataItem,
        ServerBaseline,
    )
    from hermes_atropos.config import HermesAgentEnvConfig
    from hermes_core.contracts.agent_tools import Tool, ToolCall, ToolResult, ToolSchema
    from hermes_core.contracts.rollout import AgentResult, ToolError
    from hermes_core.tooling.tool_registry import ToolRegistry, build_tool_registry

_HOMES = {
    "APIServerConfig": "hermes_atropos.compat",
    "AgentEnv": "hermes_atropos.agent.env",
    "AgentEnvConfig": "hermes_atropos.agent.env",
    "AgentResult": "hermes_core.contracts.rollout",
    "AtroposAgent": "hermes_atropos.agent.agent",
    "BaseEnvConfig": "hermes_atropos.compat",
    "EvalHandlingEnum": "hermes_atropos.compat",
    "HermesAgentBaseEnv": "hermes_atropos.base_env",
    "HermesAgentEnvConfig": "hermes_atropos.config",
    "HermesAgentLoop": "hermes_atropos.author_code.legacy_loop",
    "ScoredDataGroup": "hermes_atropos.compat",
    "ScoredDataItem": "hermes_atropos.compat",
    "ServerBaseline": "hermes_atropos.compat",
    "Tool": "hermes_core.contracts.agent_tools",
    "ToolCall": "hermes_core.contracts.agent_tools",
    "ToolContext": "hermes_atropos.author_code.legacy_loop",
    "ToolError": "hermes_core.contracts.rollout",
    "ToolRegistry": "hermes_core.tooling.tool_registry",
    "ToolResult": "hermes_core.contracts.agent_tools",
    "ToolSchema": "hermes_core.contracts.agent_tools",
    "bridged": "hermes_atropos.author_code.bridge",
    "build_tool_registry": "hermes_core.tooling.tool_registry",
}

__all__ = [
    "APIServerConfig",
    "AgentEnv",
    "AgentEnvConfig",
    "AgentResult",
    "AtroposAgent",
    "BaseEnvConfig",
    "EvalHandlingEnum",
    "HermesAgentBaseEnv",
    "HermesAgentEnvConfig",
    "HermesAgentLoop",
    "ScoredDataGroup",
    "ScoredDataItem",
    "ServerBaseline",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "ToolResult",
    "ToolSchema",
    "bridged",
    "build_tool_registry",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_atropos' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
