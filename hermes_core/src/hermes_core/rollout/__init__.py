"""Rollouts: a plan, the runtime that owns what they share, and the engine that plays one to its outcome."""

from __future__ import annotations

from hermes_core.rollout.engine import Agent, run_rollout
from hermes_core.rollout.plan import GroupPlan, RolloutLimits, RolloutSpec
from hermes_core.rollout.runtime import LOCAL_BACKEND, BoundTool, Runtime, overridden, to_completion

__all__ = [
    "LOCAL_BACKEND",
    "Agent",
    "BoundTool",
    "GroupPlan",
    "RolloutLimits",
    "RolloutSpec",
    "Runtime",
    "overridden",
    "run_rollout",
    "to_completion",
]
