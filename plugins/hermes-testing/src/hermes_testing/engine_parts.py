"""The tool and the verifier for the suite of engines."""

from __future__ import annotations

import json
import os
import platform
import zlib
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.tool import ToolResult
from hermes_core.contracts.verifier import Score

RAISES: Final = "the verifier shall raise"
"""An answer that makes the verifier raise."""


class Where:
    """Returns the process and the machine that run the rollout."""

    async def call(self, arguments: Mapping[str, Any], context: Any) -> ToolResult:
        """Return `pid` and `host`."""
        del arguments, context
        return ToolResult(content=json.dumps({"pid": os.getpid(), "host": platform.node()}))


class Answer:
    """Scores by the answer's text only, with a part that any rounding would change."""

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Return 1.0 for answers that begin with "answer", 0.25 for others."""
        del context
        text = result.final_response
        if text == RAISES:
            raise RuntimeError(text)
        share = zlib.crc32(text.encode("utf-8", "replace")) / 0xFFFFFFFB
        return Score(value=1.0 if text.startswith("answer") else 0.25, parts={"share": share})
