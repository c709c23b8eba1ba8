"""How common chat servers treat tools in a request: which requests they refuse, and what they show to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NO_PARSER: Final = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
_KNOWN_TO_TRANSFORMERS: Final = frozenset({"model", "messages", "tools", "tool_choice", "max_tokens", "temperature"})


def refusal_of(engine: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the status and error with which an engine without a tool parser refuses a request, None if it accepts it.

    Engines: `vllm`, `vllm-excluding` (with --exclude-tools-when-tool-choice-none), `sglang`, `transformers`, `plain` (a
    template without tools), `uncounted` (no usage); any other accepts and shows everything.
    """
    if engine.startswith("vllm") and body.get("tools") and body.get("tool_choice", "auto") == "auto":
        return 400, {"error": {"message": _NO_PARSER, "type": "BadRequestError", "code": 400}}
    if engine == "transformers" and not body.keys() <= _KNOWN_TO_TRANSFORMERS:
        unexpected = body.keys() - _KNOWN_TO_TRANSFORMERS
        return 422, {"detail": f"Unexpected fields in the request: {unexpected}"}
    return None


def usage_of(engine: str, body: Mapping[str, Any]) -> dict[str, int]:
    """Return the token counts of an engine for a request: tools are tokens of the prompt if the model sees them."""
    if engine == "uncounted":
        return {}
    is_hidden = engine == "plain" or (engine in {"sglang", "vllm-excluding"} and body.get("tool_choice") == "none")
    shown = 0 if is_hidden else 50 * len(body.get("tools") or ())
    return {"prompt_tokens": 9 + shown, "completion_tokens": 1}
