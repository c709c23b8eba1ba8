"""Read a streamed chat completion: its server-sent events are merged into the body of a plain answer."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError
from hermes_models.clients.http import EVENT_STREAM, HttpAnswer
from hermes_models.clients.http_errors import embedded_status
from hermes_models.clients.replies import decode_json

_WITH_USAGE: Final = b',"stream":true,"stream_options":{"include_usage":true}'
_WITHOUT_USAGE: Final = b',"stream":true'
# The wordings of Alibaba, Fireworks, OpenAI's Codex, Anthropic and of proxies before them.
_ONLY_STREAMS: Final = re.compile(
    r"only supports? (?:\w+ )?`?stream|streaming[ -]only|stream(?:ing)? (?:mode )?is required"
    r"|requires? (?:\w+ )?`?stream"
    r"|\bstream`? (?:must|has to|needs to|should) be |\bstream[\"'`]? ?[=:] ?true\b|enable the stream parameter"
    r"|non-?stream(?:ing)?\b.{0,60}\bnot (?:supported|allowed|available)|for non-?streaming calls",
    re.IGNORECASE,
)
_AT_A_TIME: Final = 1000
_MARK: Final = b"data:"
_TEXTS: Final = ("reasoning_content", "reasoning", "refusal")


class StreamCutError(ModelReplyError):
    """A stream ended before the model's reply was complete."""


def next_fields(sent: bytes, refusal: str) -> bytes | None:
    """Return the stream fields for the next try after a refusal of `sent`; None if streaming was not the reason."""
    if not sent and _ONLY_STREAMS.search(refusal):
        return _WITH_USAGE
    return _WITHOUT_USAGE if sent == _WITH_USAGE and "stream_options" in refusal else None


async def plain_answer(answer: HttpAnswer) -> HttpAnswer:
    """Convert a streamed answer to a plain one; return any other answer unchanged.

    Raises `StreamCutError` for a stream that ends before the reply does, and `ModelReplyError` for events that are
    not valid. Long streams are read in steps, so the event loop is not blocked.
    """
    if answer.status != 200 or not answer.headers.get("Content-Type", "").lower().startswith(EVENT_STREAM):
        return answer
    return answer._replace(body=await _read_events(answer.body))


async def _read_events(body: bytes) -> bytes:
    reply = _StreamedReply()
    for number, line in enumerate(io.BytesIO(body.replace(b"\r", b"\n")), 1):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        data = line[len(_MARK) :].strip() if line.startswith(_MARK) else b""
        if data == b"[DONE]":
            break
        if data and embedded_status(chunk := _chunk(data, is_whole=line.endswith(b"\n"))) is not None:
            return data
        if data:
            reply.add(chunk)
    return json.dumps(reply.completion()).encode()


def _chunk(data: bytes, *, is_whole: bool) -> Any:
    try:
        return decode_json(data)
    except ValueError as error:
        if not is_whole:
            raise StreamCutError("the stream ended within an event") from error
        raise ModelReplyError(f"an event of the stream is not JSON ({error})") from error


class _StreamedReply:
    """Joins the deltas of one reply. A delta may end in half a character; the next one then has the other half."""

    def __init__(self) -> None:
        self._content: list[Any] = []
        self._details: list[Any] = []
        self._texts: dict[str, list[str]] = {name: [] for name in _TEXTS}
        self._calls = _StreamedCalls()
        self._ends: dict[str, str] = {}
        self._usage: Mapping[str, Any] | None = None

    def add(self, chunk: Any) -> None:
        """Add one event."""
        try:
            usage = chunk.get("usage")
            self._usage = usage if isinstance(usage, dict) else self._usage
            for choice in chunk.get("choices") or ():
                if not choice.get("index"):
                    self._take(choice.get("delta") or {})
                    ends = {key: choice.get(key) for key in ("finish_reason", "native_finish_reason")}
                    self._ends |= {key: end for key, end in ends.items() if isinstance(end, str) and end}
        except (AttributeError, TypeError) as error:
            raise ModelReplyError(f"an event of the stream is not part of a chat completion ({error})") from error

    def completion(self) -> Mapping[str, Any]:
        """Return the chat completion; raise `StreamCutError` if the model's reply is incomplete."""
        if "finish_reason" not in self._ends:
            raise StreamCutError("the stream ended before the reply did: no event has a finish_reason")
        message: dict[str, Any] = {name: "".join(pieces) or None for name, pieces in self._texts.items()}
        calls, content = self._calls.complete(), self._joined_content()
        # A server that does not stream leaves out an empty text before calls.
        message |= {"content": None if calls and not content else content, "tool_calls": calls}
        message["reasoning_details"] = self._details
        return {"choices": [{"message": message, **self._ends}], "usage": self._usage}

    def _joined_content(self) -> str | list[Any] | None:
        joined: list[Any] = []
        for is_text, run in itertools.groupby(self._content, key=lambda piece: isinstance(piece, str)):
            pieces = list(run)
            joined += ["".join(pieces)] if is_text else pieces
        is_plain = len(joined) <= 1 and all(isinstance(piece, str) for piece in joined)
        return next(iter(joined), None) if is_plain else joined

    def _take(self, delta: Any) -> None:
        content = delta.get("content")
        if content is not None:
            self._content += content if isinstance(content, list) else [content]
        for name, pieces in self._texts.items():
            if isinstance(text := delta.get(name), str):
                pieces.append(text)
        if isinstance(details := delta.get("reasoning_details"), list):
            self._details += details
        for item in delta.get("tool_calls") or ():
            self._calls.add(item)


class _StreamedCalls:
    """Joins the pieces of tool calls: one call per index, and a new one when a name arrives with another id.

    Some servers give all calls of a reply the index 0 or no index; each call then comes in one piece.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}

    def add(self, item: Any) -> None:
        """Add a piece of a call."""
        function, index, call_id = item.get("function") or {}, item.get("index"), item.get("id")
        name, arguments = function.get("name"), function.get("arguments")
        has_index = isinstance(index, int)
        call = self._by_index.get(index) if has_index else next(reversed(self._calls), None)
        if call is None or (name and self._is_other(call, call_id, has_index=has_index)):
            call = {"id": None, "name": None, "arguments": []}
            self._calls.append(call)
            if has_index:
                self._by_index[index] = call
        call["id"] = call["id"] or call_id
        call["name"] = call["name"] or name
        if arguments is not None:
            call["arguments"].append(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def complete(self) -> list[Mapping[str, Any]]:
        """Return the calls in the form of a plain answer."""
        return [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": "".join(call["arguments"]) if call["arguments"] else None,
                },
            }
            for call in self._calls
        ]

    @staticmethod
    def _is_other(call: Mapping[str, Any], call_id: object, *, has_index: bool) -> bool:
        return call["id"] is not None and call["id"] != call_id if call_id else not has_index
