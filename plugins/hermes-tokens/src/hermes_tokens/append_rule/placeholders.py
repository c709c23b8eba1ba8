"""Replace every text in messages by a slot, so that a template is rendered without it.

A template that never sees a text cannot change it, and one rendering serves all messages of the same shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import Message, RequestedCall

# Nine letters and digits: some templates accept no other form of call id.
SLOT: Final = re.compile(r"Hq(\d{5})vZ")
BODY: Final = "Hq99999vZ"
"""The slot for the model's own text of a turn."""
BREAK: Final = "Hq99997vZ"
"""An empty separator: inserted into untrusted text, it splits what would be a control token or a slot."""
_NAME: Final = re.compile(r"[\w .-]*")
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "thinking")
# A text with white space, quotes, a line end and letters, to see how a template changes each.
_BEFORE, _BETWEEN, _AFTER = " \n", "\"\\'\n<é>", " \n"


def slot(index: int) -> str:
    """Return the text of a slot."""
    return f"Hq{index:05d}vZ"


class SlottedMessages:
    """Messages with slots and the texts to fill in; `key` is equal for messages of one shape.

    `texts` are the slots of prose, `required` those that the model must read, with the role of their message; `bounds`
    count the slots before the first message and after each.
    """

    def __init__(self, messages: Sequence[Message], calls: Sequence[RequestedCall] = ()) -> None:
        self.values: list[str] = []
        self.texts: set[int] = set()
        self.required: dict[int, str] = {}
        self._ids: dict[str, str] = {}
        self.calls = [self._call(call) for call in calls]
        self.bounds: list[int] = [len(self.values)]
        self.messages = [self._message(message) for message in messages]

    @property
    def key(self) -> str:
        """The shape, as text."""
        return json.dumps([self.calls, self.messages], ensure_ascii=False)

    def with_padding(self) -> list[Message]:
        """Return the messages with the text slots padded with characters that a template might change."""
        return [map_texts(message, self._pad) for message in self.messages]

    def _pad(self, text: str) -> str:
        match = SLOT.fullmatch(text)
        return pad(text) if match and int(match[1]) in self.texts else text

    def _message(self, message: Message) -> Message:
        made: Message = {}
        role = str(message.get("role"))
        for key, value in message.items():
            if key in _TEXTS:
                made[key] = None if value is None else self._text(value, "" if role == "assistant" else role)
            elif key == "tool_calls":
                made[key] = [self._tool_call(call) for call in value or ()]
            elif key == "tool_call_id":
                made[key] = None if value is None else self._id(value)
            else:
                made[key] = value if key == "role" else map_texts(value, self._take, self._key)
        self.bounds.append(len(self.values))
        return made

    def _text(self, value: Any, role: str = "") -> str:
        text = _content_text(value)
        if not text.strip():  # templates test whether there is any text
            return text
        taken = self._take(text)
        self.texts.add(len(self.values) - 1)
        if role:
            self.required[len(self.values) - 1] = role
        return taken

    def _call(self, call: RequestedCall) -> dict[str, str]:
        taken = self._id(call.id if call.wire_id is None else call.wire_id)
        self._ids[call.id] = taken
        return {"id": taken, "name": self._take(call.name)}

    def _tool_call(self, call: Any) -> dict[str, Any]:
        function = (call.get("function") or call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise ConfigError(
                f"expected a tool call as an object with a function's name and arguments, got {str(call)[:80]!r}",
                hint='{"id": "…", "type": "function", "function": {"name": "…", "arguments": "{…}"}}',
            )
        made: dict[str, Any] = {"name": self._take(str(function.get("name", "")))}
        made["arguments"] = map_texts(decode_arguments(function.get("arguments")), self._text, self._key)
        identity = {"id": self._id(call["id"])} if call.get("id") else {}
        return {**identity, "type": "function", "function": made}

    def _key(self, key: str) -> str:
        """Keep a plain key unchanged, so that its position is right when a template sorts by key."""
        return key if _NAME.fullmatch(key) else self._take(key)

    def _id(self, value: Any) -> str:
        text = str(value)
        if text not in self._ids:
            self._ids[text] = self._take(text)
        return self._ids[text]

    def _take(self, text: str) -> str:
        self.values.append(text)
        return slot(len(self.values) - 1)


def pad(text: str) -> str:
    """Return a slot's text twice, with white space around it and difficult characters in between."""
    return f"{_BEFORE}{text}{_BETWEEN}{text}{_AFTER}"


def common_start(text: str, other: str) -> int:
    """Return the length of the common start of two texts."""
    shorter = min(len(text), len(other))
    if text[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if text[place] != other[place])


def map_texts(value: Any, change: Callable[[str], str], rename: Callable[[str], str] = str) -> Any:
    """Return a JSON value with every text changed and every key renamed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {rename(key): map_texts(each, change, rename) for key, each in value.items()}
    if isinstance(value, list):
        return [map_texts(each, change, rename) for each in value]
    return value


def _content_text(value: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
        return "".join(part["text"] for part in value)
    raise ConfigError(
        f"expected text as a message's content, got {str(value)[:80]!r}",
        hint="models that record tokens accept text only; convert other content to text",
    )


def decode_arguments(arguments: Any) -> Any:
    """Return a call's arguments, decoded if they are the text of a JSON object."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
