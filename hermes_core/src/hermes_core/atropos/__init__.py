"""Environments for Atropos; the only room that imports atroposlib, and only when a name of it is used.

See the README of hermes-agent-core for the map from the predecessor's modules to these.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.atropos.base_env import HermesAgentBaseEnv
    from hermes_core.atropos.bridge import bridged
    from hermes_core.atropos.compat import APIServerConfig, EvalHandlingEnum, ServerBaseline
    from hermes_core.atropos.config import HermesAgentEnvConfig
    from hermes_core.contracts.rollout import AgentResult, ToolError

_HOMES = {
    "APIServerConfig": "hermes_core.atropos.compat",
    "AgentResult": "hermes_core.contracts.rollout",
    "EvalHandlingEnum": "hermes_core.atropos.compat",
    "HermesAgentBaseEnv": "hermes_core.atropos.base_env",
    "HermesAgentEnvConfig": "hermes_core.atropos.config",
    "ServerBaseline": "hermes_core.atropos.compat",
    "ToolError": "hermes_core.contracts.rollout",
    "bridged": "hermes_core.atropos.bridge",
}

__all__ = [
    "APIServerConfig",
    "AgentResult",
    "EvalHandlingEnum",
    "HermesAgentBaseEnv",
    "HermesAgentEnvConfig",
    "ServerBaseline",
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
