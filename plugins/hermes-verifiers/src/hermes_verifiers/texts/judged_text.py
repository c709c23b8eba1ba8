"""Read the text to judge: the model's final answer, or a file."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hermes_core.contracts.rollout import AgentResult
from hermes_verifiers.options import StrictOptions
from hermes_verifiers.texts.workspace_files import MAX_BYTES, read_untrusted


class SubjectOptions(StrictOptions):
    """`file` is a path in the workspace; None means the final answer. Longer texts are cut to `max_chars`."""

    file: str | None = None
    max_chars: int = Field(default=100_000, ge=1, le=MAX_BYTES)

    async def subject(self, result: AgentResult, context: Any) -> tuple[str, str]:
        """Return the text, or why there is none."""
        if self.file is None:
            problem = "" if result.final_response else "there is no final answer"
            return result.final_response[: self.max_chars], problem
        found = await read_untrusted(context.sandbox, self.file)
        if found.data is None:
            return "", found.problem
        return found.data.decode("utf-8", "replace")[: self.max_chars], ""
