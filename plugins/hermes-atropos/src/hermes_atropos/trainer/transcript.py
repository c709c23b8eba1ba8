"""Format conversations as readable text: for rollout tables, and for the page beside a file of groups."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_core.contracts.model import Message

logger = logging.getLogger(__name__)

_THINKING = 300
_ARGUMENTS = 200
_RESULT = 500


def format_trajectory(messages: Sequence[Message]) -> str:
    """Format a conversation with reasoning, tool calls and results, truncating long ones."""
    return "\n\n".join(part for message in messages for part in _parts(message))


def _parts(message: Message) -> list[str]:
    role, content = message.get("role", "unknown"), _text(message.get("content"))
    if role in {"system", "user"}:
        return [f"[{role.upper()}]\n{content}"]
    if role == "tool":
        return [f"[TOOL RESULT] {_cut(content, _RESULT)}"]
    if role != "assistant":
        return []
    reasoning = message.get("reasoning_content")
    parts = [f"[ASSISTANT thinking]\n{_cut(str(reasoning), _THINKING)}"] if reasoning else []
    parts += [f"[ASSISTANT]\n{content}"] if content else []
    return parts + [_call(call.get("function", {})) for call in message.get("tool_calls") or ()]


def _call(function: Mapping[str, Any]) -> str:
    return f"[TOOL CALL] {function.get('name', '?')}({_cut(str(function.get('arguments', '{}')), _ARGUMENTS)})"


def _text(content: Any) -> str:
    if isinstance(content, list):  # parts of a multimodal message
        return "".join(part.get("text", f"[{part.get('type', '?')}]") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "..."


def write_page(groups: Path, target: Path) -> None:
    """Write a self-contained page with the conversations and scores of a file of groups; blocks.

    A failure, due to the disk or to values in a group, is only logged, because the page is optional.
    """
    try:
        _write_page(groups, target)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("the page %s cannot be written: %s: %s", target, type(error).__name__, error)


def _write_page(groups: Path, target: Path) -> None:
    # Line by line, because the file may not fit into memory.
    shown = html.escape(groups.stem)
    with groups.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        out.write(
            "<!doctype html>\n"
            f'<html lang="en"><head><meta charset="utf-8"><title>{shown}</title><style>'
            "body{font:14px/1.5 system-ui,sans-serif;margin:2rem;max-width:70rem}"
            "pre{white-space:pre-wrap;background:#f6f6f4;padding:.75rem;border-radius:4px}"
            f"</style></head><body>\n<h1>{shown}</h1>\n"
        )
        for number, line in enumerate(lines, 1):
            out.write(_section(number, json.loads(line)) + "\n")
        out.write("</body></html>\n")


def _section(number: int, group: Mapping[str, Any]) -> str:
    scores = group.get("scores") or []
    conversations = group.get("messages") or [[] for _ in scores]
    items = "\n".join(
        f"<details><summary>score {score:g}</summary><pre>{html.escape(format_trajectory(messages))}</pre></details>"
        for score, messages in zip(scores, conversations, strict=True)
    )
    return f"<h2>group {number}</h2>\n{items}"
