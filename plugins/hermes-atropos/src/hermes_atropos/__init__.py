"""Environments for Atropos; the only room that imports atroposlib, and only when a name of it is used.

See ATROPOS.md beside the README for the map from the predecessor's modules to these.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.atropos.agent import AtroposAgent
    from hermes_core.atropos.agent_env import AgentEnv, AgentEnvConfig
    from hermes_core.atropos.base_env import HermesAgentBaseEnv
    from hermes_core.atropos.bridge import bridged
    from hermes_core.atropos.compat import (
        APIServerConfig,
        BaseEnvConfig,
        EvalHandlingEnum,
        ScoredDataGroup,
        ScoredDataItem,
        ServerBaseline,
    )
    from hermes_core.atropos.config import HermesAgentEnvConfig
    from hermes_core.atropos.own_rollouts import HermesAgentLoop, ToolContext
    from hermes_core.contracts.rollout import AgentResult, ToolError

_HOMES = {
    "APIServerConfig": "hermes_core.atropos.compat",
    "AgentEnv": "hermes_core.atropos.agent_env",
    "AgentEnvConfig": "hermes_core.atropos.agent_env",
    "AgentResult": "hermes_core.contracts.rollout",
    "AtroposAgent": "hermes_core.atropos.agent",
    "BaseEnvConfig": "hermes_core.atropos.compat",
    "EvalHandlingEnum": "hermes_core.atropos.compat",
    "HermesAgentBaseEnv": "hermes_core.atropos.base_env",
    "HermesAgentEnvConfig": "hermes_core.atropos.config",
    "HermesAgentLoop": "hermes_core.atropos.own_rollouts",
    "ScoredDataGroup": "hermes_core.atropos.compat",
    "ScoredDataItem": "hermes_core.atropos.compat",
    "ServerBaseline": "hermes_core.atropos.compat",
    "ToolContext": "hermes_core.atropos.own_rollouts",
    "ToolError": "hermes_core.contracts.rollout",
    "bridged": "hermes_core.atropos.bridge",
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
    "ToolContext",
    "ToolError",
    "bridged",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core.atropos' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
