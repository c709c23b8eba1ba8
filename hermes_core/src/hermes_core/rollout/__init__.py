"""Rollouts: a plan, the runtime that owns what they share, and the engine that plays one to its outcome."""

from __future__ import annotations

from hermes_core.rollout.engine import Agent, run_rollout
from hermes_core.rollout.plan import GroupPlan, RolloutLimits, RolloutSpec
from hermes_core.rollout.runtime import Runtime, override, to_completion

__all__ = [
    "Agent",
    "GroupPlan",
    "RolloutLimits",
    "RolloutSpec",
    "Runtime",
    "override",
    "run_rollout",
    "to_completion",
]
