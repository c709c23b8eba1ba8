"""Tool calling: arguments, the budget of results, toolsets and which tools a rollout is offered."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.tooling.arguments import ArgumentsError, prepare_arguments, unique_keys
    from hermes_core.tooling.budget import ResultBudget
    from hermes_core.tooling.sandbox_paths import expand_home, scratch_directory
    from hermes_core.tooling.selection import ToolSelection, select_tools
    from hermes_core.tooling.toolsets import resolve_toolset, validate_toolset

__all__ = [
    "ArgumentsError", "ResultBudget", "ToolSelection", "expand_home", "prepare_arguments", "resolve_toolset",
    "scratch_directory", "select_tools", "unique_keys", "validate_toolset",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".arguments": "ArgumentsError prepare_arguments unique_keys",
            ".budget": "ResultBudget",
            ".sandbox_paths": "expand_home scratch_directory",
            ".selection": "ToolSelection select_tools",
            ".toolsets": "resolve_toolset validate_toolset",
        },
    )
