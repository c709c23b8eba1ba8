"""Find the request fields that return a model's raw text: tools in the prompt, tool-call marks in the answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.errors import (
    ModelRateLimitError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
)
from hermes_core.contracts.model import Conversation, ModelReply, ModelRequest, ToolSchemas
from hermes_models.clients.model_list import CHECK_TIMEOUT

_WITH_MARKS: Final = {"skip_special_tokens": False}
# vLLM shows the tools with "none" and refuses "auto" unless it parses itself; SGLang hides them with "none". Both drop
# special tokens from the text, and with them most formats' marks; others refuse a field that they do not know.
_NONE: Final = {"tool_choice": "none"}
_WAYS: Final[tuple[Mapping[str, Any], ...]] = ({**_NONE, **_WITH_MARKS}, _WITH_MARKS, _NONE, {})
_DECIDE_THE_PROMPT: Final = ("tool_choice", "chat_template", "chat_template_kwargs")
# Each probe gets a refusal or one token, not an answer; the run's own requests may fare differently.
_NO_PROOF: Final = (
    *(ModelRequestError, ModelReplyError, ModelServerError),
    *(ModelRateLimitError, ModelTimeoutError),
)
_NO_TOOLS: Final = ToolSchemas()
_TOOL: Final = ToolSchemas.of(
    [
        {
            "type": "function",
            "function": {
                "name": "look_up",
                "description": "Looks a word up.",
                "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
            },
        }
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawText:
    """The fields of a request with tools that make a server return raw text.

    `tools_in_prompt` is None where the server does not count prompt tokens.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    tools_in_prompt: bool | None = None


async def choose_fields(
    ask: Callable[[ModelRequest], Awaitable[ModelReply]], given: Mapping[str, Any], shown: str
) -> RawText:
    """Find the fields that make the server show the tools to the model, judging by its count of prompt tokens.

    Sends two to five requests of one token. Fields in `given`, the run's own, are never chosen here. Without proof,
    the request stays unchanged if the server accepts it, and a warning is logged.
    """
    prompt = {name: given[name] for name in _DECIDE_THE_PROMPT if name in given}
    try:
        without = await _prompt_tokens(ask, _NO_TOOLS, {k: v for k, v in prompt.items() if k != "tool_choice"})
    except _NO_PROOF as error:
        _warn(f"could not determine whether {shown} shows the tools to the model: {error.message}")
        return RawText()
    accepted, refusal = [], None
    for way in _WAYS:
        fields = {name: value for name, value in way.items() if name not in given}
        if fields in accepted:
            continue
        try:
            count = await _prompt_tokens(ask, _TOOL, prompt | fields)
        except _NO_PROOF as error:
            refusal = error
            continue
        if without and count > without:
            return RawText(fields=fields, tools_in_prompt=True)
        accepted.append(fields)
    if not accepted and refusal is not None:
        raise refusal
    _warn(_unproven(shown, without))
    return RawText(fields={} if {} in accepted else accepted[0], tools_in_prompt=False if without else None)


async def _prompt_tokens(
    ask: Callable[[ModelRequest], Awaitable[ModelReply]], tools: ToolSchemas, fields: Mapping[str, Any]
) -> int:
    conversation = Conversation([{"role": "user", "content": "hello"}])
    request = ModelRequest(
        conversation=conversation, tools=tools, sampling={**fields, "max_tokens": 1}, timeout=CHECK_TIMEOUT
    )
    return (await ask(request)).usage.prompt_tokens


def _unproven(shown: str, count: int) -> str:
    if not count:
        return f"{shown} counts no prompt tokens, so it is unknown whether it shows the tools to the model"
    return (
        f"{shown} does not show the tools to the model: it counts {count} prompt tokens with a tool and without; "
        "serve it with a chat template that lists tools (vLLM: --chat-template FILE, and without "
        "--exclude-tools-when-tool-choice-none), or describe the tools in the system prompt"
    )


def _warn(message: str) -> None:
    logging.getLogger(__name__).warning("%s", message)
