"""The first place where a conversation is not what it was when the model answered it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from hermes_core.contracts.model import Conversation, Message
from hermes_tokens.append_rule.placeholders import decode_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a caller has changed first: a field of the message at `message`, counted from 0.

    `turn` counts the assistant messages before it: the turn that this message is, or that it asks for.
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
        same = self._shared(encoded)
        copies = copy.deepcopy(list(conversation.messages[same:]))
        return type(self)([*self.messages[:same], *copies], encoded)

    def first_edit(self, later: History) -> Edit | None:
        """Return the first of these messages that a later request has otherwise, or not at all."""
        for place in range(self._shared(later._encoded), len(self)):
            if place >= len(later):
                return self.edit(place, "absence")
            field = first_difference(self.messages[place], later.messages[place])
            if field:
                return self.edit(place, field)
        return None

    def edit(self, place: int, field: str) -> Edit:
        """Describe an edit of the message at a place."""
        roles = [str(message.get("role")) for message in self.messages[: place + 1]]
        role = roles[place] if place < len(roles) else "assistant"
        return Edit(message=place, turn=roles[:place].count("assistant"), role=role, field=field)

    def _shared(self, encoded: Sequence[bytes]) -> int:
        pairs = zip(self._encoded, encoded, strict=False)
        return next((place for place, (own, other) in enumerate(pairs) if own != other), min(len(self), len(encoded)))


def first_difference(message: Message, other: Message) -> str:
    """Return the name of the first field in which two messages differ to a template, "" if in none."""
    one, two = canonical(message), canonical(other)
    fields = ("role", *sorted({*one, *two} - {"role"}))
    return next((key for key in fields if _text(one.get(key)) != _text(two.get(key))), "")


def canonical(message: Message) -> Message:
    """Return a message with one form for what says the same: no empty field, arguments as values, content as text."""
    made = {key: value for key, value in message.items() if value not in (None, "", [], {})}
    if "content" in made:
        made["content"] = _content(made["content"])
    if "tool_calls" in made:
        made["tool_calls"] = [_call(call) for call in made["tool_calls"]]
    return made


def _content(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
        return "".join(str(part.get("text")) for part in value)
    return value


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return id, name and arguments; the rest says how they came over the wire."""
    function = call.get("function") or {}
    arguments = decode_arguments(function.get("arguments") or "{}")
    return {"id": call.get("id") or "", "name": function.get("name"), "arguments": arguments}


def _text(value: Any) -> str:
    # As text 1, 1.0 and true are three; the order of arguments counts, for a template writes them in it.
    return json.dumps(value, default=str)
