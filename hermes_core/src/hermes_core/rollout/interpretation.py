"""Turn a model's reply into the message for the conversation and the tool calls to make."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.model import Message, ModelReply, RequestedCall
from hermes_core.tooling.arguments import is_whole

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ParseAttempt, ParsedCall, ParseResult, ToolCallParser

# A call of any known format is a mark with one of these words, or JSON or Python that names an offered tool.
_WORD: Final = r"(?<![^\W_])(?:tools?|functions?|invoke|calls?|action|ACTION|python_tag|DSML)(?![^\W_])"
_MARK: Final = re.compile(
    rf"<(?=[^<>\s\"'=]*{_WORD})(?![^<>\s]*://)[^<>\s\"'=]*+[>=\s]|<\|open\|>(?:tools|call)|<\|channel\|>commentary to="
    r"|\[TOOL_CALLS\]|\bfunctools\[|\bto=functions\.|\bfunction call<\|"
).search
_JSON: Final = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_PYTHONIC: Final = re.compile(r"^\[?([A-Za-z_]\w*)\(", re.MULTILINE)
_DECODER: Final = json.JSONDecoder()
_SHORT_ID: Final = 9
_LONG_NUMBER: Final = 10
_MOST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """One assistant turn.

    `complaint` tells the model which of its attempts to call a tool could not be read: without it a turn
    would pass for a final answer, or a call would vanish among good ones.
    """

    message: Message
    calls: tuple[RequestedCall, ...] = ()
    content: str | None = None
    malformed: int = 0
    complaint: str | None = None
    truncation: str | None = None
    """What to tell the model if the token limit cut its reply off inside a call. That is the last one of `calls`,
    which is not made. If there is a complaint, it says this too."""
    is_unparsed: bool = False
    """Whether the reply looks like a tool call in raw text for which there was no parser."""


def parse_reply(
    reply: ModelReply,
    parser: ToolCallParser | None,
    schemas: Sequence[Any] = (),
    used_ids: dict[str, int] | None = None,
    offered: Collection[str] = (),
) -> ParsedReply:
    """Read a reply; raw text goes through the parser if there is one and the server reported no calls.

    A parser sees one message; `used_ids` are the ids of the rollout's earlier calls, which no call may have again,
    and to which those of this one are added. `offered` are the tools' names, which identify calls without a mark.
    """
    if parser is None or reply.tool_calls or not reply.content:
        message = assistant_message(reply.content, reply.reasoning, reply.tool_calls)
        is_unparsed = parser is None and not reply.tool_calls and _looks_like_calls(reply.content or "", offered)
        is_cut = reply.finish_reason == "length" and (
            (is_unparsed and bool(offered)) or any(not is_whole(call.arguments) for call in reply.tool_calls[-1:])
        )
        cut = truncation_notice(reply) if is_cut else None
        turn = ParsedReply(message=message, calls=reply.tool_calls, content=reply.content, truncation=cut)
        # A server that parses calls may return one that was cut off as text.
        return replace(turn, is_unparsed=is_unparsed and cut is None, complaint=cut if is_unparsed else None)
    result = parser.parse(reply.content, list(schemas))
    used_ids = {} if used_ids is None else used_ids
    calls = tuple(_request_of(call, used_ids) for call in result.calls)
    bad = _attempts_to_answer(result, calls)
    if calls or not bad:
        message = assistant_message(result.content, reply.reasoning or result.reasoning, calls)
    else:
        message = assistant_message(reply.content, reply.reasoning, ())
    is_cut = reply.finish_reason == "length" and any(item.end >= len(reply.content.rstrip()) for item in bad[-1:])
    cut, others = (truncation_notice(reply), bad[:-1]) if is_cut else (None, bad)
    complaint = "\n".join(filter(None, [cut, _complaint(others, calls) if others else None])) or None
    turn = ParsedReply(message=message, calls=calls, content=result.content, malformed=len(bad))
    return replace(turn, complaint=complaint, truncation=cut)


def _looks_like_calls(text: str, offered: Collection[str]) -> bool:
    if _MARK(text) or any(call[1] in offered for call in _PYTHONIC.finditer(text)):
        return True
    # A line may begin like JSON and not be JSON; to try more of them adds nothing.
    return any(_names_a_tool(text, found.end(), offered) for found in islice(_JSON.finditer(text), _MOST_SHOWN))


def _names_a_tool(text: str, at: int, offered: Collection[str]) -> bool:
    try:
        value, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return False
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict) or not {"arguments", "parameters"} & first.keys():
        return False
    return isinstance(first.get("name"), str) and first["name"] in offered


def _request_of(call: ParsedCall, used_ids: dict[str, int]) -> RequestedCall:
    unused = _free_id(call.id, used_ids)
    wire_id = call.wire_id if call.wire_id != unused else None
    return RequestedCall(id=unused, name=call.name, arguments=call.arguments, wire_id=wire_id)


def _attempts_to_answer(result: ParseResult, calls: Sequence[RequestedCall]) -> list[ParseAttempt]:
    """Return the attempts whose results the model would expect but never get.

    A call to a tool that is not offered is answered by the dispatcher, also if the server parsed it. One drafted in
    reasoning does not count, unless the reasoning never ended: then it is all that the turn has.
    """
    from hermes_core.contracts.parsing import AttemptStatus  # only runs with a parser have imported it

    unanswered = {AttemptStatus.OK, AttemptStatus.REPAIRED, AttemptStatus.UNCLOSED, AttemptStatus.IN_REASONING}
    bad = [attempt for attempt in result.attempts if attempt.status not in unanswered]
    bad = [a for a in bad if a.status is not AttemptStatus.UNKNOWN_TOOL or not calls]
    if bad or calls or (result.content or "").strip():
        return bad
    return list(result.attempts)


def _free_id(wanted: str, used: dict[str, int]) -> str:
    """Return an id of the same shape that no call of the rollout has, and add it to `used`.

    Models whose format has ids start counting again in each turn: `functions.f:0` becomes `functions.f:1`, and nine
    alphanumeric characters stay nine, as their templates require. `used` maps each id to where counting goes on.
    """
    stem, colon, number = wanted.rpartition(":")
    counts = bool(colon) and number.isdecimal() and len(number) < _LONG_NUMBER
    counter = f"{stem}:" if counts else wanted
    unused, tries = wanted, max(used.get(counter, 0), int(number) if counts else 0)
    while unused in used:
        tries += 1
        if counts:
            unused = f"{stem}:{tries}"
        elif len(wanted) == _SHORT_ID and wanted.isalnum():
            unused = sha256(f"{wanted} {tries}".encode()).hexdigest()[:_SHORT_ID]
        else:
            unused = f"{wanted}_{tries}"
    used[unused] = used[counter] = tries
    return unused


def assistant_message(content: str | None, reasoning: str | None, calls: Sequence[RequestedCall]) -> Message:
    """Build the assistant message that goes back to the model in later turns."""
    message: Message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
                # With this id the parser writes the turn again as the model did.
                **({"wire_id": call.wire_id} if call.wire_id else {}),
            }
            for call in calls
        ]
    return message


def truncation_notice(reply: ModelReply) -> str:
    """Return the text that tells the model that its reply was cut off inside a call."""
    number = f"{reply.usage.completion_tokens} " if reply.usage.completion_tokens else ""
    where = f"Your reply was cut off at the limit of {number}tokens, in the middle of a tool call that was not made."
    return f"{where} Make a shorter call, or do it in several."


def _complaint(attempts: Sequence[ParseAttempt], calls: Sequence[RequestedCall]) -> str:
    lines = [f"- {attempt.status.value}: {attempt.reason or attempt.raw[:200]}" for attempt in attempts[:_MOST_SHOWN]]
    if len(attempts) > _MOST_SHOWN:
        lines.append(f"- and {len(attempts) - _MOST_SHOWN} more")
    if calls:
        first = f"Not made, because unreadable: {len(attempts)} of your {len(attempts) + len(calls)} tool calls."
    else:
        first = "No tool was called, because no call could be read."
    return "\n".join([first, *lines, "Write again what is still needed."])
