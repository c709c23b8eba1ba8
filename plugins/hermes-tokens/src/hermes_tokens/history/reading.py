"""Decide whether a message is a valid parse of a sampled turn although it is not the recorded message.

Valid are the text itself, the run's parser's result, and any message that the template writes as it was sampled. White
space around marks and the spelling of JSON may differ; everything else must be present.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.model import Message
from hermes_core.contracts.parsing import ToolCallParser
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.append_rule.placeholders import common_start, decode_arguments
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.history.edit import first_difference
from hermes_tokens.vocabulary import ControlToken

_USER: Final[Message] = {"role": "user", "content": "Hello"}
_MARK: Final = re.compile(r"<[^<>]*>|\[/?[A-Z_]+\]")
_BEGIN: Final = re.compile(r"[{<\[]")
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "thinking")
# Text that starts like JSON but is not is decoded up to its end each time.
_MOST_FAILURES: Final = 32
_DECODER: Final = json.JSONDecoder(strict=False)


def unread_field(rule: AppendRule, message: Message, sampled: str, *, opened: bool) -> str:
    """Return the field of a message that does not match the sampled turn, or "" if all do.

    `sampled` is the text without its stop token and without the part that the prompt had `opened`.
    """
    text = rule.reasoning.opening + sampled if opened else sampled
    calls = message.get("tool_calls") or ()
    if not all(isinstance(call, Mapping) and isinstance(call.get("function") or call, Mapping) for call in calls):
        return "tool_calls"
    if not first_difference(message, {"role": "assistant", "content": text}, rule.template.reads) or _is_written_so(
        rule, message, sampled
    ):
        return ""
    if rule.parser is not None:
        return first_difference(_parser_reading(rule, rule.parser, text), _without_ids(message), rule.template.reads)
    for name in _TEXTS:
        own = message.get(name)
        if isinstance(own, str) and own not in sampled:
            return name
    return "tool_calls" if calls else "content"


def _parser_reading(rule: AppendRule, parser: ToolCallParser, text: str) -> Message:
    """Return the message that the run's parser makes of the turn, with calls without ids."""
    read = parser.parse(text, rule.tools)
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in read.calls]
    return {"role": "assistant", "content": read.content, "reasoning_content": read.reasoning, "tool_calls": calls}


def _without_ids(message: Message) -> Message:
    """Return the message without the ids of its calls, which any caller may choose."""
    return {**message, "tool_calls": [{**call, "id": ""} for call in message.get("tool_calls") or ()]}


def _is_written_so(rule: AppendRule, message: Message, sampled: str) -> bool:
    """Return whether the template writes the message as sampled, followed only by the end of a turn."""
    texts = (message.get(name) for name in _TEXTS)
    if any(isinstance(text, str) and text not in sampled for text in texts):  # white space may be removed, not added
        return False
    calls = [_with_values(call) for call in message.get("tool_calls") or ()]
    message = {**message, "tool_calls": calls} if calls else message
    try:
        prompt, asked, answered = (
            rule.renderer.render([_USER], prompt=False),
            rule.renderer.render([_USER]),
            rule.renderer.render([_USER, message], prompt=False),
        )
    except TemplateError:
        return False
    start = common_start(prompt, asked)
    header, turn = asked[start:], answered[start:]
    marks = rule.reasoning.opening, rule.reasoning.closing
    if turn.startswith(header):
        wanted, written = _pieces(sampled), _pieces(turn[len(header) :])
    else:
        wanted, written = _pieces(header + sampled), _pieces(turn)
    pairs = [(_without_empty(wanted, *marks), _without_empty(written, *marks))]
    content = str(message.get("content") or "").strip()
    if content in pairs[0][0]:  # a template writes the text before the calls, a model may write it after them
        pairs.append((_without(pairs[0][0], content), _without(pairs[0][1], content)))
    return any(_is_beginning(rule, *pair) for pair in pairs)


def _is_beginning(rule: AppendRule, wanted: Sequence[str], written: Sequence[str]) -> bool:
    """Return whether the second starts with the first and continues only with the end of a turn."""
    if list(written[: len(wanted)]) != list(wanted):
        return False
    rest = rule.tokenizer.controls.split("".join(written[len(wanted) :]))
    return all(isinstance(piece, ControlToken) or not piece.strip() for piece in rest)


def _with_values(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    return {**call, "function": {**function, "arguments": decode_arguments(function.get("arguments") or "{}")}}


def _without_empty(pieces: Sequence[str], opening: str, closing: str) -> Sequence[str]:
    """Remove an empty pair of reasoning marks, which templates add."""
    if not opening:
        return pieces
    pairs = {place for place, piece in enumerate(pieces[:-1]) if (piece, pieces[place + 1]) == (opening, closing)}
    return [piece for place, piece in enumerate(pieces) if place not in pairs and place - 1 not in pairs]


def _without(pieces: Sequence[str], piece: str) -> Sequence[str]:
    place = pieces.index(piece) if piece in pieces else len(pieces)
    return [*pieces[:place], *pieces[place + 1 :]]


def _pieces(text: str) -> Sequence[str]:
    """Split a text into marks, normalised JSON objects, and stripped text between them."""
    return [piece for piece in _divisions(text) if piece]


def _divisions(text: str) -> Iterator[str]:
    place = failures = 0
    while place < len(text):
        found = _BEGIN.search(text, place)
        start = len(text) if found is None else found.start()
        yield text[place:start].strip()
        if found is None:
            return
        piece, place = _structure(text, start, is_json=failures < _MOST_FAILURES)
        failures += piece == "{"
        yield piece


def _structure(text: str, start: int, *, is_json: bool) -> tuple[str, int]:
    """Return the JSON object or mark at a position and its end, or else the single character."""
    if text[start] == "{":
        try:
            value, end = _DECODER.raw_decode(text, start) if is_json else (None, start + 1)
        except (ValueError, RecursionError):
            value, end = None, start + 1
        return (json.dumps(value), end) if value is not None else ("{", end)
    mark = _MARK.match(text, start)
    return (text[start], start + 1) if mark is None else (mark.group(), mark.end())
