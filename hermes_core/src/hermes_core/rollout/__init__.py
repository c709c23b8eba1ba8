"""Rollouts: a plan, the runtime that owns what they share, and the engine that plays one to its outcome."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.rollout.boundary import PluginEscapeError, error_location, guard_plugin_call
    from hermes_core.rollout.context import RolloutContext
    from hermes_core.rollout.copying import copy_tree
    from hermes_core.rollout.dispatch import ToolDispatcher
    from hermes_core.rollout.engine import Agent, run_rollout
    from hermes_core.rollout.interpretation import ParsedReply, parse_reply, truncation_notice
    from hermes_core.rollout.leasing import supply_lease_store
    from hermes_core.rollout.loop import AgentLoop
    from hermes_core.rollout.places import artifacts_for, least_access, require_own_place
    from hermes_core.rollout.plan import GroupPlan, RolloutLimits, RolloutSpec
    from hermes_core.rollout.record import RolloutRecord, failed_outcome
    from hermes_core.rollout.runtime import Runtime, merge_sandbox_spec
    from hermes_core.rollout.seals import Seal, all_verifiers, hash_files
    from hermes_core.rollout.sync_context import SyncToolContext
    from hermes_core.rollout.tool_runtime import FindTool
    from hermes_core.rollout.workers import WorkerThreads

__all__ = [
    "Agent", "AgentLoop", "FindTool", "GroupPlan", "ParsedReply", "PluginEscapeError", "RolloutContext",
    "RolloutLimits", "RolloutRecord", "RolloutSpec", "Runtime", "Seal", "SyncToolContext", "ToolDispatcher",
    "WorkerThreads", "all_verifiers", "artifacts_for", "copy_tree", "error_location", "failed_outcome",
    "guard_plugin_call", "hash_files", "least_access", "merge_sandbox_spec", "parse_reply", "require_own_place",
    "run_rollout", "supply_lease_store", "truncation_notice",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".boundary": "PluginEscapeError error_location guard_plugin_call",
        ".context": "RolloutContext",
        ".copying": "copy_tree",
        ".dispatch": "ToolDispatcher",
        ".engine": "Agent run_rollout",
        ".interpretation": "ParsedReply parse_reply truncation_notice",
        ".leasing": "supply_lease_store",
        ".loop": "AgentLoop",
        ".places": "artifacts_for least_access require_own_place",
        ".plan": "GroupPlan RolloutLimits RolloutSpec",
        ".record": "RolloutRecord failed_outcome",
        ".runtime": "Runtime merge_sandbox_spec",
        ".seals": "Seal all_verifiers hash_files",
        ".sync_context": "SyncToolContext",
        ".tool_runtime": "FindTool",
        ".workers": "WorkerThreads",
    },
)
