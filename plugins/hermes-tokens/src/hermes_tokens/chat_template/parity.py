"""Compare a prompt that was built turn by turn with the template's own rendering.

Assistant turns may differ, because the model wrote them; everything else must be equal, including the turns' ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from hermes_core.contracts.model import Message
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.chat_template.template import TemplateError

Span = tuple[str, Sequence[int]]
"""A role and ids."""
_BLANK = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """A comparison's result: `fault` is the first difference or ""; `foreign` counts control ids of untrusted text."""

    fault: str = ""
    foreign: int = 0


def compare(rule: AppendRule, messages: Sequence[Message], spans: Sequence[Span]) -> Parity:
    """Compare a prompt, given as its spans, with the template's own text for the same messages."""
    said = [_fill_empty(message) for message in messages]
    found: Parity | None = None
    refusal: TemplateError | None = None
    for form in _forms(said):
        try:
            parity = _compare(rule, form, spans)
        except TemplateError as error:  # some templates accept a turn's calls only with a text beside them
            refusal = refusal or error
            continue
        if not parity.fault:
            return parity
        found = parity if found is None or form is said else found
    if found is None:
        assert refusal is not None
        raise refusal
    return found


def _forms(said: list[Message]) -> Iterator[list[Message]]:
    """Yield the messages several times, each with other texts for the turns, which are not compared.

    Short texts save most of the encoding time of a long conversation. Some templates write the text beside a turn's
    calls after the results, where the model cannot have written it; others leave out the calls or their marks.
    """
    yield [_mute(message) for message in said]
    yield said
    yield [_without_text(message) for message in said]
    yield [_without_calls(message) for message in said]


def _compare(rule: AppendRule, messages: Sequence[Message], spans: Sequence[Span]) -> Parity:
    controls = rule.tokenizer.control_ids
    fresh = [(span.role, span.ids) for span in rule.opening(messages).spans]
    blank = [(span.role, span.ids) for span in rule.opening([_blank(message) for message in messages]).spans]
    own = list(_skeleton(spans, rule))
    fault = _first_difference(rule, list(_skeleton(fresh, rule)), own)
    foreign = _count(own, controls) - _count(_skeleton(blank, rule), controls)
    return Parity(fault=fault, foreign=max(0, foreign))


def _skeleton(spans: Iterable[Span], rule: AppendRule) -> Iterator[int]:
    """Yield the ids that must be equal. A stop token may be the next role's opener, so both are one sequence."""
    turn: list[int] = []
    for role, ids in spans:
        if role == "assistant":
            turn += ids
            continue
        yield from _closes(turn, rule)
        turn.clear()
        yield from ids
    yield from _closes(turn, rule)


def _closes(turn: Sequence[int], rule: AppendRule) -> list[int]:
    """Return the stop tokens at a turn's end; those within it, such as between two calls, are the model's own."""
    stops = (rule.stop_ids | rule.ends.closes) - rule.ends.marks
    closes = []
    for token in reversed(turn):
        if token in stops:
            closes.append(token)
        elif rule.tokenizer.decode([token]).strip():
            break
    return closes


def _count(ids: Iterable[int], wanted: frozenset[int]) -> int:
    return sum(token in wanted for token in ids)


def _first_difference(rule: AppendRule, fresh: Sequence[int], own: Sequence[int]) -> str:
    for place, (wanted, found) in enumerate(zip_longest(fresh, own)):
        if wanted != found:
            around = slice(max(0, place - 8), place + 8)
            decode = rule.tokenizer.decode
            return f"the template writes {decode(fresh[around])!r} where the prompt has {decode(own[around])!r}"
    return ""


def _fill_empty(message: Message) -> Message:
    """Give an empty turn a text, because an empty one has no visible end."""
    is_empty = message.get("role") == "assistant" and not message.get("content") and not message.get("tool_calls")
    return {**message, "content": _BLANK} if is_empty else message


def _mute(message: Message) -> Message:
    content = message.get("content")
    says = message.get("role") == "assistant" and isinstance(content, str) and content.strip()
    return {**message, "content": _BLANK} if says else message


def _without_calls(message: Message) -> Message:
    return {"role": message["role"], "content": _BLANK} if message.get("tool_calls") else message


def _without_text(message: Message) -> Message:
    return {**message, "content": ""} if message.get("content") and message.get("tool_calls") else message


def _blank(message: Message) -> Message:
    content: Any = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": _BLANK}
    if isinstance(content, list):
        parts = [{**part, "text": _BLANK} if isinstance(part, dict) and part.get("text") else part for part in content]
        return {**message, "content": parts}
    return message
