"""A message of a chat, as requests, tasks and records hold it."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
"""One chat message in OpenAI form: `role`, `content`, and `tool_calls` or `tool_call_id` where they apply."""
