"""The size budget of tool results: what is too long is saved in the sandbox and replaced by a preview.

The first of the three layers is each tool's own cap; this module holds the other two, per result and per turn.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.specs import ToolSpec
from hermes_core.tooling.sandbox_paths import scratch_directory

FOLDER: Final = "hermes-results"
_NEVER: Final = -1
_CLOSING: Final = "</persisted-output>"
_OVERHEAD: Final = 600
"""More than what surrounds a preview; a result that is hardly longer would gain nothing from being replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBudget:
    """The limits, in characters. A tool whose spec says -1 is pinned: no override makes its results be replaced."""

    default_result_size_chars: int = 100_000
    turn_budget_chars: int = 200_000
    preview_size_chars: int = 1_500
    tool_result_overrides: Mapping[str, int] | None = None

    def threshold(self, spec: ToolSpec) -> float:
        """Return the length above which a result of this tool is replaced."""
        if spec.max_result_size_chars == _NEVER:
            return float("inf")
        chosen = (self.tool_result_overrides or {}).get(spec.name, spec.max_result_size_chars)
        if chosen is None:
            chosen = self.default_result_size_chars
        return float("inf") if chosen == _NEVER else chosen

    async def fit(self, content: str, *, spec: ToolSpec, sandbox: Sandbox | None) -> str:
        """Return a result as it is, or what replaces it when it is longer than its tool may answer."""
        return content if len(content) <= self.threshold(spec) else await self._persist(content, sandbox)

    async def fit_turn(
        self, contents: Sequence[str], *, specs: Sequence[ToolSpec | None], sandbox: Sandbox | None
    ) -> list[str]:
        """Return one turn's results, the largest replaced until all together are within the turn's budget.

        Results of pinned tools come last: they are replaced only when nothing else is left to shorten.
        """
        fitted = list(contents)
        total = sum(map(len, fitted))
        pinned = [spec is not None and spec.max_result_size_chars == _NEVER for spec in specs]
        order = sorted(range(len(fitted)), key=lambda at: (pinned[at], -len(fitted[at]), at))
        for at in order:
            if total <= self.turn_budget_chars:
                break
            if len(fitted[at]) > self.preview_size_chars + _OVERHEAD:
                shorter = await self._persist(fitted[at], sandbox)
                total += len(shorter) - len(fitted[at])
                fitted[at] = shorter
        return fitted

    async def _persist(self, content: str, sandbox: Sandbox | None) -> str:
        preview = _preview(content, self.preview_size_chars)
        path = None if sandbox is None else await _save(content, sandbox)
        if path is None:
            return (
                f"{preview}\n\n[Truncated: tool response was {len(content):,} chars. "
                "Full output could not be saved to sandbox.]"
            )
        size = len(content.encode("utf-8", "replace")) / 1024
        return (
            "<persisted-output>\n"
            f"This tool result was too large ({len(content):,} characters, {size:,.1f} KB).\n"
            f"Full output saved to: {path}\n"
            "Use the read_file tool with offset and limit to look at parts of it.\n\n"
            f"Preview (first {len(preview)} chars):\n{preview}\n...\n{_CLOSING}"
        )


def _preview(content: str, size: int) -> str:
    start = content[:size]
    newline = start.rfind("\n")
    if newline > size // 2:
        start = start[:newline]
    # The output is not ours: it must not be able to end the block early.
    return start.replace(_CLOSING, "<\\/persisted-output>")


async def _save(content: str, sandbox: Sandbox) -> str | None:
    # A name of our own: ids of calls come from the model, repeat, and may hold slashes.
    try:
        path = f"{await scratch_directory(sandbox)}/{FOLDER}/{uuid.uuid4().hex}.txt"
        await sandbox.write_file(path, _readable(content).encode("utf-8", "replace"))
    except (OSError, BackendError):
        return None
    return path


def _readable(content: str) -> str:
    """Lay out a JSON answer in lines, since read_file shows lines: a text field keeps its own line breaks."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(answer, dict):
        return content
    parts = []
    for name, value in answer.items():
        if isinstance(value, str) and "\n" in value:
            parts.append(f"{name}:\n{value}")
        else:
            parts.append(f"{name}: {json.dumps(value, ensure_ascii=False, indent=1)}")
    return "\n".join(parts) + "\n"
