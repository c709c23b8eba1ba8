"""The first place where a conversation is not what it was when the model answered it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from hermes_core.contracts.model import Conversation, Message
from hermes_tokens.append_rule.placeholders import decode_arguments
from hermes_tokens.chat_template.template import REASONING_FIELDS

Reads = Callable[[str], bool]
"""Says whether a chat template reads a field of messages."""
_ALWAYS: Final = frozenset({"role", "content", "tool_calls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a caller has changed first: a field of the message at `message`, counted from 0.

    `turn` counts the assistant messages before it: the turn that this message is, or that it asks for. `field` is
    "absence" for a message that is gone, "insertion" for one that was not there, and "tools" for other tools.
    """

    message: int
    turn: int
    role: str
    field: str

    def __str__(self) -> str:
        return f"turn {self.turn}, {self.field} of message {self.message} ({self.role})"


class History:
    """The messages of one request, as they were when it was made; the caller's own may change afterwards."""

    def __init__(self, messages: Sequence[Message] = (), encoded: Sequence[bytes] = ()) -> None:
        self.messages = messages
        self._encoded = tuple(encoded)

    def __len__(self) -> int:
        return len(self.messages)

    def next(self, conversation: Conversation) -> Self:
        """Read a later request; what is there already is not copied again."""
        encoded = conversation.encoded_messages
        same = self._equal_count(encoded, conversation.messages)
        copies = copy.deepcopy(list(conversation.messages[same:]))
        return type(self)([*self.messages[:same], *copies], encoded)

    def first_edit(self, later: History, reads: Reads) -> Edit | None:
        """Return the first of these messages that a later request has otherwise, or not at all."""
        own, other = self.messages, later.messages
        for place in range(self._equal_count(later._encoded, other), len(self)):
            if place >= len(other):
                return self.edit(place, "absence")
            field = first_difference(own[place], other[place], reads)
            if field:
                is_gone = place + 1 < len(own) and not first_difference(own[place + 1], other[place], reads)
                return self.edit(place, "absence" if is_gone else field)
        return None

    def edit(self, place: int, field: str) -> Edit:
        """Describe an edit of the message at a place."""
        roles = [str(message.get("role")) for message in self.messages[: place + 1]]
        role = roles[place] if place < len(roles) else "assistant"
        return Edit(message=place, turn=roles[:place].count("assistant"), role=role, field=field)

    def _equal_count(self, encoded: Sequence[bytes], messages: Sequence[Message]) -> int:
        """Return how many messages are the same, field by field."""
        for place, (own, other) in enumerate(zip(self._encoded, encoded, strict=False)):
            # A lone surrogate is a question mark in bytes.
            if own != other or (b"?" in own and self.messages[place] != messages[place]):
                return place
        return min(len(self), len(encoded))


def first_difference(message: Message, other: Message, reads: Reads) -> str:
    """Return the name of the first field in which two messages differ to a template, "" if in none."""
    one, two = canonical_form(message, reads), canonical_form(other, reads)
    fields = ("role", *sorted({*one, *two} - {"role"}))
    return next((key for key in fields if _as_json(one.get(key)) != _as_json(two.get(key))), "")


def canonical_form(message: Message, reads: Reads) -> Message:
    """Return a message with one form for what says the same: arguments as values, content and reasoning as text.

    A field that the template does not read says nothing. What an assistant message has empty is left out; in others a
    template may write it.
    """
    made = {key: value for key, value in message.items() if key in _ALWAYS or reads(key)}
    reasoning = next((message[key] for key in REASONING_FIELDS if message.get(key) is not None), None)
    made = {key: value for key, value in made.items() if key not in REASONING_FIELDS} | {"reasoning_content": reasoning}
    made["content"] = _joined_content(made.get("content"))
    if isinstance(made.get("tool_calls"), list):
        made["tool_calls"] = [
            _canonical_call(call) if isinstance(call, Mapping) else call for call in made["tool_calls"]
        ]
    if message.get("role") != "assistant":
        return made
    return {key: value for key, value in made.items() if value not in (None, "", [], {})}


def _joined_content(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
        return "".join(str(part.get("text")) for part in value)
    return value


def _canonical_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return id, name and arguments; the rest says how they came over the wire."""
    function = call.get("function") or call
    if not isinstance(function, Mapping):
        return dict(call)
    arguments = decode_arguments(function.get("arguments") or "{}")
    return {"id": call.get("id") or "", "name": function.get("name"), "arguments": arguments}


def _as_json(value: Any) -> str:
    # As text 1, 1.0 and true are three; the order of arguments counts, for a template writes them in it.
    return json.dumps(value, default=str)
