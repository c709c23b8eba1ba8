"""A session's sequences in the form that hermes-agent's code reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hermes_core.contracts.rollout import AgentResult


class SequenceNode(dict[str, Any]):
    """One sequence, by key and by attribute: tokens, masked_tokens, logprobs."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def as_nodes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a session's state with nodes that have attributes as well as keys."""
    return {**state, "nodes": [SequenceNode(node) for node in state.get("nodes", ())]}


def with_nodes(result: AgentResult) -> AgentResult:
    """Return a result with its state, if any, converted to nodes."""
    if result.managed_state is None:
        return result
    return dataclasses.replace(result, managed_state=as_nodes(result.managed_state))
