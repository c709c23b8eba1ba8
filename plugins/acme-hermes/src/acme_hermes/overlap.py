"""A verifier with partial credit."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict, Field

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.tool import ToolContext
from hermes_core.contracts.verifier import Score


class WordOverlap:
    """F1 of the words in a file of the sandbox (or, without a path, in the final answer) against a reference."""

    class Options(BaseModel):
        """What a task says about it."""

        model_config = ConfigDict(extra="forbid")

        reference: str = Field(pattern=r"\w", description="The text to match.")
        path: str | None = Field(default=None, description="The file to judge; the final answer if not given.")

    def __init__(self, options: Options) -> None:
        self._reference = _words(options.reference)
        self._path = options.path

    async def score(self, result: AgentResult, context: ToolContext) -> Score:
        """Judge; a file that is not there has no words."""
        try:
            text = result.final_response if self._path is None else await context.read_text(self._path)
        except OSError as error:
            return Score(value=0.0, detail=f"{self._path} cannot be read: {error}")
        words = _words(text)
        common = (words & self._reference).total()
        precision = common / max(1, words.total())
        recall = common / self._reference.total()
        value = 0.0 if common == 0 else 2 * precision * recall / (precision + recall)
        parts = {"precision": precision, "recall": recall}
        return Score(value=value, parts=parts, detail=f"{common} of {self._reference.total()} words")


def _words(text: str) -> Counter[str]:
    return Counter(text.lower().split())
