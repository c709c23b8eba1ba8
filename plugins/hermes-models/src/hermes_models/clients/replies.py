"""Parse a chat completion: the servers' various shapes become one `ModelReply`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.model import ModelReply, RequestedCall, Usage, encode

# An unpaired surrogate: legal in JSON text, but it cannot be encoded as UTF-8.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ANSWERED_ID: Final = re.compile(rb'"tool_call_id":("(?>(?:[^"\\]|\\.)*)")')
_ESCAPED_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
# Finish reasons for an end that neither the model nor a limit caused. A content filter is not one: it judges the
# model's text.
_BROKEN_OFF: Final = frozenset(
    {"abort", "aborted", "cancelled", "error", "insufficient_system_resource", "network_error"}
)


def decode_json(body: bytes) -> Any:
    """Decode a JSON body; raise `ValueError` if it is not valid JSON."""
    try:
        return json.loads(body.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_reply(data: Any, *, sent: bytes, number: int, body: bytes = b"") -> ModelReply:
    """Turn a decoded chat completion into a reply.

    `sent` is the serialised conversation that was answered, and `number` is its length: a call without an id, or with
    one already used in `sent`, gets the id `call_<n>` with n counted from `number`. `body` is the answer's bytes.
    """
    try:
        choice = data["choices"][0]
        message = choice["message"]
        requested = message.get("tool_calls") or ()
        calls = tuple(_calls(requested, sent, number))
        content, thoughts = _content(message)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelReplyError(f"the answer is not a chat completion ({type(error).__name__}: {error})") from error
    reasoning = _reasoning(message) or thoughts
    if _ESCAPED_SURROGATE.search(body):
        content, reasoning = _clean(content), _clean(reasoning)
        calls = tuple(RequestedCall(id=c.id, name=_clean(c.name), arguments=_clean(c.arguments)) for c in calls)
    finish = choice.get("finish_reason")
    return ModelReply(
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason=finish if isinstance(finish, str) and finish else ("tool_calls" if calls else "stop"),
        usage=_usage(data.get("usage")),
    )


def why_no_answer(reply: ModelReply, data: Any) -> str | None:
    """Return why a chat completion is not an answer of the model, judging by the server's own fields, or None.

    A model that stops at once has sampled one token, so that is an answer. A server that counts no prompt tokens does
    not count at all, so its 0 sampled tokens prove nothing.
    """
    native = str(data["choices"][0].get("native_finish_reason") or "").lower()
    if reply.finish_reason in _BROKEN_OFF and not native.startswith("malformed"):
        return f"the model was interrupted (finish_reason {reply.finish_reason})"
    is_empty = not (reply.tool_calls or (reply.content or "").strip() or reply.reasoning)
    usage = data.get("usage")
    if not is_empty or reply.finish_reason == "length" or not isinstance(usage, dict) or not usage.get("prompt_tokens"):
        return None
    return "it has no text and no call, and 0 sampled tokens" if usage.get("completion_tokens") == 0 else None


def _content(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the text, and the reasoning if the server sends it as a part of the content."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return (refusal if isinstance(refusal, str) else None), None
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        raise TypeError(f"content is {type(content).__name__}")
    texts: tuple[list[str], list[str]] = [], []
    for part in content:
        is_thought = isinstance(part, dict) and part.get("type") in {"thinking", "reasoning"}
        texts[is_thought].append(_text(part))
    return "".join(texts[False]), "".join(texts[True]) or None


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "".join(_text(item) for item in part)
    if isinstance(part, dict):
        return next((_text(part[key]) for key in ("text", "thinking", "reasoning") if part.get(key)), "")
    return ""


def _reasoning(message: Mapping[str, Any]) -> str | None:
    for key in ("reasoning_content", "reasoning"):
        value = message.get(key)
        if isinstance(value, str) and value:
            return value
    details = message.get("reasoning_details")
    if isinstance(details, list):
        return "".join(_text(item) for item in details if isinstance(item, dict)) or None
    return None


def _calls(requested: Any, sent: bytes, number: int) -> Iterator[RequestedCall]:
    if not requested:
        return
    if not isinstance(requested, list):
        raise TypeError(f"tool_calls is {type(requested).__name__}")
    # Quotes inside a JSON string are escaped, so this finds the key only, never a text that looks like it.
    seen = {json.loads(found) for found in _ANSWERED_ID.findall(sent)}
    own = number
    for offset, item in enumerate(requested):
        function = item["function"]
        name, arguments = function.get("name"), function.get("arguments")
        call_id, own = item.get("id"), max(own, number + offset)
        while not _is_new(call_id, seen):
            call_id, own = f"call_{own}", own + 1
        seen.add(call_id)
        yield RequestedCall(id=call_id, name=name if isinstance(name, str) else "", arguments=_arguments(arguments))


def _is_new(call_id: object, seen: set[str]) -> bool:
    """Return whether an id is new in the whole conversation; some servers count from zero in every turn."""
    return isinstance(call_id, str) and bool(call_id) and call_id not in seen and not _LONE_SURROGATE.search(call_id)


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "{}" if value is None else encode(value).decode()


def _usage(value: object) -> Usage:
    if not isinstance(value, dict):
        return Usage()
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    return Usage(
        prompt_tokens=prompt if isinstance(prompt, int) else 0,
        completion_tokens=completion if isinstance(completion, int) else 0,
    )


def _clean(text: Any) -> Any:
    return _LONE_SURROGATE.sub("\ufffd", text) if isinstance(text, str) else text
