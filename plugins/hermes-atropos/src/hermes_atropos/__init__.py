"""Environments for an Atropos trainer; atroposlib is imported on first use of a name below.

ATROPOS.md, beside the package's README, maps hermes-agent's modules to these.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_atropos.agent.agent import AtroposAgent
    from hermes_atropos.agent.config import OWNERS, AgentEnvConfig
    from hermes_atropos.agent.env import AgentEnv
    from hermes_atropos.author_code.bridge import bridge_coroutine
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
    from hermes_core.contracts.rollout import AgentResult, ToolError
    from hermes_tools.agent_tools import Tool, ToolCall, ToolRegistry, ToolResult, ToolSchema, build_tool_registry

__all__ = [
    "OWNERS", "APIServerConfig", "AgentEnv", "AgentEnvConfig", "AgentResult", "AtroposAgent", "BaseEnvConfig",
    "EvalHandlingEnum", "HermesAgentBaseEnv", "HermesAgentEnvConfig", "HermesAgentLoop", "ScoredDataGroup",
    "ScoredDataItem", "ServerBaseline", "Tool", "ToolCall", "ToolContext", "ToolError", "ToolRegistry",
    "ToolResult", "ToolSchema", "bridge_coroutine", "build_tool_registry",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".agent.agent": "AtroposAgent",
            ".agent.config": "AgentEnvConfig OWNERS",
            ".agent.env": "AgentEnv",
            ".author_code.bridge": "bridge_coroutine",
            ".author_code.legacy_loop": "HermesAgentLoop ToolContext",
            ".base_env": "HermesAgentBaseEnv",
            ".compat": ("APIServerConfig BaseEnvConfig EvalHandlingEnum ScoredDataGroup ScoredDataItem ServerBaseline"),
            ".config": "HermesAgentEnvConfig",
            "hermes_core.contracts.rollout": "AgentResult ToolError",
            "hermes_tools.agent_tools": "Tool ToolCall ToolRegistry ToolResult ToolSchema build_tool_registry",
        },
    )
