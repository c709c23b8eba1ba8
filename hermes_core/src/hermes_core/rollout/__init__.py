"""Rollouts: their plan, the runtime with everything they share, and the engine that runs one to its outcome."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.rollout.dispatch import ToolDispatcher
    from hermes_core.rollout.engine import Agent, run_rollout
    from hermes_core.rollout.interpretation import ParsedReply, parse_reply, truncation_notice
    from hermes_core.rollout.leasing import supply_lease_store
    from hermes_core.rollout.loop import AgentLoop
    from hermes_core.rollout.plan import GroupPlan, RolloutLimits, RolloutSpec
    from hermes_core.rollout.plugin_calls.context import RolloutContext
    from hermes_core.rollout.plugin_calls.plugin_guard import PluginEscapeError, error_location, guard_plugin_call
    from hermes_core.rollout.plugin_calls.sync_context import SyncToolContext
    from hermes_core.rollout.plugin_calls.tool_runtime import FindTool
    from hermes_core.rollout.plugin_calls.worker_threads import WorkerThreads
    from hermes_core.rollout.record import RolloutRecord, failed_outcome
    from hermes_core.rollout.runtime import Runtime, merge_sandbox_spec
    from hermes_core.rollout.verification.artifacts import copy_tree
    from hermes_core.rollout.verification.integrity import Seal, all_verifiers, hash_files
    from hermes_core.rollout.verification.verifier_sandboxes import artifacts_for, least_access, require_own_place

__all__ = [
    "Agent", "AgentLoop", "FindTool", "GroupPlan", "ParsedReply", "PluginEscapeError", "RolloutContext",
    "RolloutLimits", "RolloutRecord", "RolloutSpec", "Runtime", "Seal", "SyncToolContext", "ToolDispatcher",
    "WorkerThreads", "all_verifiers", "artifacts_for", "copy_tree", "error_location", "failed_outcome",
    "guard_plugin_call", "hash_files", "least_access", "merge_sandbox_spec", "parse_reply", "require_own_place",
    "run_rollout", "supply_lease_store", "truncation_notice",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".dispatch": "ToolDispatcher",
            ".engine": "Agent run_rollout",
            ".interpretation": "ParsedReply parse_reply truncation_notice",
            ".leasing": "supply_lease_store",
            ".loop": "AgentLoop",
            ".plan": "GroupPlan RolloutLimits RolloutSpec",
            ".plugin_calls.context": "RolloutContext",
            ".plugin_calls.plugin_guard": "PluginEscapeError error_location guard_plugin_call",
            ".plugin_calls.sync_context": "SyncToolContext",
            ".plugin_calls.tool_runtime": "FindTool",
            ".plugin_calls.worker_threads": "WorkerThreads",
            ".record": "RolloutRecord failed_outcome",
            ".runtime": "Runtime merge_sandbox_spec",
            ".verification.artifacts": "copy_tree",
            ".verification.integrity": "Seal all_verifiers hash_files",
            ".verification.verifier_sandboxes": "artifacts_for least_access require_own_place",
        },
    )
