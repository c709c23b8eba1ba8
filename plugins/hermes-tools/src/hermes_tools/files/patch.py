"""The tool `patch`: find and replace, or a patch text for several files. Either everything is applied or nothing."""

from __future__ import annotations

from typing import Any

from hermes_core.contracts.tool import ToolContext, ToolResult


class PatchTool:
    """Changes files. Both modes edit a draft, which is written at the end."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Apply the change. Return `diff`, the changed files, and how the text was matched."""
        # Not at the top: every run creates the tool before its first model call, and most change no file with it.
        from hermes_tools.files.file_changes import change_files

        return await change_files(arguments, context.sandbox)
