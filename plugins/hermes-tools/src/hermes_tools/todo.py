"""The tool `todo`: a task list for the duration of the rollout."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_tools.results import failure, json_result

STATE_KEY: Final = "hermes.todo"
_STATUSES: Final = ("pending", "in_progress", "completed", "cancelled")


class TodoTool:
    """Keeps the list in the rollout's state, in the model's order."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Read, replace or merge the list, and return all of it."""
        stored: list[dict[str, str]] = context.state.get(STATE_KEY, [])
        given = arguments.get("todos")
        if given is not None:
            entries = [{**item, "id": str(item["id"])} for item in given]
            twice = [name for name, count in Counter(item["id"] for item in entries).items() if count > 1]
            if twice:
                return failure(f"The id {twice[0]!r} is given twice; the list was not changed.")
            merged = _merge(stored if arguments.get("merge") else [], entries)
            absent = [item["id"] for item in merged if not item["content"]]
            if absent:
                return failure(f"New entries need content. Without it: {', '.join(absent)}. The list was not changed.")
            context.state[STATE_KEY] = stored = merged
        counts = Counter(item["status"] for item in stored)
        summary = {"total": len(stored), **{status: counts[status] for status in _STATUSES}}
        return json_result(todos=stored, summary=summary)


def _merge(stored: list[dict[str, str]], entries: list[dict[str, str]]) -> list[dict[str, str]]:
    merged = {item["id"]: item for item in stored}
    for item in entries:
        old = merged.get(item["id"], {"id": item["id"], "content": "", "status": "pending"})
        merged[item["id"]] = {**old, **item}
    return list(merged.values())
