"""Find the first difference between a conversation and its state when the model answered it."""

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
"""Returns whether a chat template reads a field of messages."""
_ALWAYS: Final = frozenset({"role", "content", "tool_calls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The first change by a caller: a field of the message at index `message`.

    `turn` counts the assistant messages before it: the turn that this message is, or that answers it. `field` is
    "absence" for a removed message, "insertion" for an added one, and "tools" for other tools.
    """

    message: int
    turn: int
    role: str
    field: str

    def __str__(self) -> str:
        return f"turn {self.turn}, {self.field} of message {self.message} ({self.role})"


class History:
    """A copy of the messages of one request, because the caller may change its own afterwards."""

    def __init__(self, messages: Sequence[Message] = (), encoded: Sequence[bytes] = ()) -> None:
        self.messages = messages
        self._encoded = tuple(encoded)

    def __len__(self) -> int:
        return len(self.messages)

    def next(self, conversation: Conversation) -> Self:
        """Read a later request without copying known messages again."""
        encoded = conversation.encoded_messages
        same = self._equal_count(encoded, conversation.messages)
        copies = copy.deepcopy(list(conversation.messages[same:]))
        return type(self)([*self.messages[:same], *copies], encoded)

    def first_edit(self, later: History, reads: Reads) -> Edit | None:
        """Return the first edit in a later request: a changed, removed or inserted message."""
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
        """Describe an edit of the message at an index."""
        roles = [str(message.get("role")) for message in self.messages[: place + 1]]
        role = roles[place] if place < len(roles) else "assistant"
        return Edit(message=place, turn=roles[:place].count("assistant"), role=role, field=field)

    def _equal_count(self, encoded: Sequence[bytes], messages: Sequence[Message]) -> int:
        """Return the number of leading messages that are equal field by field."""
        for place, (own, other) in enumerate(zip(self._encoded, encoded, strict=False)):
            # A lone surrogate is encoded as a question mark.
            if own != other or (b"?" in own and self.messages[place] != messages[place]):
                return place
        return min(len(self), len(encoded))


def first_difference(message: Message, other: Message, reads: Reads) -> str:
    """Return the first field in which two messages differ for a template, or ""."""
    one, two = canonical_form(message, reads), canonical_form(other, reads)
    fields = ("role", *sorted({*one, *two} - {"role"}))
    return next((key for key in fields if _as_json(one.get(key)) != _as_json(two.get(key))), "")


def canonical_form(message: Message, reads: Reads) -> Message:
    """Return a message in canonical form: arguments as values, content and reasoning as text.

    Fields that the template does not read are left out, and so are empty fields of an assistant message; for other
    roles a template may write those.
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
    """Return id, name and arguments; the other fields only concern the wire format."""
    function = call.get("function") or call
    if not isinstance(function, Mapping):
        return dict(call)
    arguments = decode_arguments(function.get("arguments") or "{}")
    return {"id": call.get("id") or "", "name": function.get("name"), "arguments": arguments}


def _as_json(value: Any) -> str:
    # As text, 1, 1.0 and true differ. The order of arguments counts, because a template writes them in it.
    return json.dumps(value, default=str)
