"""`AgentEnv`, an environment with a step-by-step agent, and the types of its author interface."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_atropos.agent.agent import AtroposAgent
    from hermes_atropos.agent.results import AgentConfig, AgentResult, AgentStep, SequenceData

__all__ = ["AgentConfig", "AgentResult", "AgentStep", "AtroposAgent", "SequenceData"]

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".agent": "AtroposAgent",
            ".results": "AgentConfig AgentResult AgentStep SequenceData",
        },
    )
