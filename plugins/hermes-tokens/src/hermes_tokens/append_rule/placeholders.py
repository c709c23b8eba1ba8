"""Messages with a slot in the place of every text that is not the template's own.

A template that never sees the texts cannot make anything of them, and one rendering serves all messages of one shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import Message, RequestedCall

# Nine letters and digits: some templates accept nothing else as the id of a call.
SLOT: Final = re.compile(r"Hq(\d{5})vZ")
BODY: Final = "Hq99999vZ"
"""Stands for what the model wrote in its turn."""
BREAK: Final = "Hq99997vZ"
"""Stands for nothing: it parts what would be a control token or a slot, in text that is not the template's own."""
_NAME: Final = re.compile(r"[\w .-]*")
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "thinking")
# A text whose white space, quotes, line end and letters show what a template does with it.
_BEFORE, _BETWEEN, _AFTER = " \n", "\"\\'\n<é>", " \n"


def slot(index: int) -> str:
    """Return the text of a slot."""
    return f"Hq{index:05d}vZ"


class SlottedMessages:
    """Messages with slots, and what belongs in them; `key` is equal for messages of one shape.

    `texts` are the slots that hold prose, `required` those that the model must read, with the role of their message;
    `bounds` say how many slots there are before the first message and after each.
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
        """The shape as text."""
        return json.dumps([self.calls, self.messages], ensure_ascii=False)

    def with_padding(self) -> list[Message]:
        """Return the messages with the slots of texts set about with what a template might change."""
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
        if not text.strip():  # templates ask whether there is any text
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
                f"a tool call is an object with a function's name and arguments, found {str(call)[:80]!r}",
                hint='{"id": "…", "type": "function", "function": {"name": "…", "arguments": "{…}"}}',
            )
        made: dict[str, Any] = {"name": self._take(str(function.get("name", "")))}
        made["arguments"] = map_texts(decode_arguments(function.get("arguments")), self._text, self._key)
        identity = {"id": self._id(call["id"])} if call.get("id") else {}
        return {**identity, "type": "function", "function": made}

    def _key(self, key: str) -> str:
        """Keep a plain key, and with it its place where a template sorts by key."""
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
    """Return a slot's text, twice, with white space around and difficult characters between."""
    return f"{_BEFORE}{text}{_BETWEEN}{text}{_AFTER}"


def common_start(text: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    shorter = min(len(text), len(other))
    if text[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if text[place] != other[place])


def map_texts(value: Any, change: Callable[[str], str], rename: Callable[[str], str] = str) -> Any:
    """Return a JSON value with every text changed, and every key renamed."""
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
        f"text was wanted as a message's content, found {str(value)[:80]!r}",
        hint="models that record tokens take text only; turn other content into text",
    )


def decode_arguments(arguments: Any) -> Any:
    """Return a call's arguments as an object where they are the text of one."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
