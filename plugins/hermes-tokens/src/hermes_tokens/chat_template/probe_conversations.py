"""The conversations of the start-up check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_core.contracts.model import Message, RequestedCall
from hermes_tokens.append_rule.placeholders import BODY

_SYSTEM: Final[Message] = {"role": "system", "content": "You help with the weather.\n"}
_ASK: Final[Message] = {"role": "user", "content": " What is the weather in Oslo, and the time?"}
_AND: Final[Message] = {"role": "user", "content": "And in Malmö?\n"}
_REPORT: Final = '  7 °C, "clear"\n\nwind: 3 m/s \\ N\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConversation:
    """A conversation to compare: the part after the assistant message at `turn`, or all of it if `turn` is None."""

    name: str
    messages: tuple[Message, ...]
    turn: int | None = None

    @property
    def calls(self) -> tuple[RequestedCall, ...]:
        """The calls of that turn."""
        if self.turn is None:
            return ()
        made: Sequence[Mapping[str, Any]] = self.messages[self.turn].get("tool_calls", ())
        return tuple(RequestedCall(id=each["id"], name=each["function"]["name"], arguments="{}") for each in made)

    @property
    def after_tools(self) -> bool:
        """Whether there is a tool result before that turn."""
        return any(message["role"] == "tool" for message in self.messages[: self.turn])

    def with_content(self, content: str | None) -> list[Message]:
        """Return the messages with this content beside the turn's calls."""
        messages = list(self.messages)
        if self.turn is not None and self.calls:
            messages[self.turn] = {**messages[self.turn], "content": content}
        return messages


def _call(number: int, name: str, argument: str) -> dict[str, Any]:
    function = {"name": name, "arguments": {"place": argument}}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def _calling(*calls: dict[str, Any], **more: str) -> Message:
    return {"role": "assistant", "content": "", **more, "tool_calls": list(calls)}


def _result(number: int, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call{number:05d}", "content": content}


_FIRST: Final = (_calling(_call(1, "weather", "Oslo")), _result(1, "7 °C"))
_LAST: Final = _calling(_call(9, "weather", BODY))


def _turns(name: str, *messages: Message) -> ProbeConversation:
    turn = max(place for place, message in enumerate(messages) if message["role"] == "assistant")
    return ProbeConversation(name=name, messages=messages, turn=turn)


def _all() -> Iterator[ProbeConversation]:
    yield ProbeConversation(name="opening", messages=(_ASK,))
    yield ProbeConversation(name="opening_with_system", messages=(_SYSTEM, _ASK))
    yield _turns("user_message", _ASK, {"role": "assistant", "content": BODY}, _AND)
    yield _turns("tool_result", _ASK, _LAST, _result(9, _REPORT))
    yield _turns("empty_tool_result", _ASK, _LAST, _result(9, ""))
    two = _calling(_call(8, "time", BODY), _call(9, "weather", BODY))
    yield _turns("two_tool_results", _ASK, two, _result(8, "12:30"), _result(9, _REPORT))
    yield _turns("tool_result_and_user_message", _ASK, _LAST, _result(9, _REPORT), _AND)
    yield _turns("several_turns", _SYSTEM, _ASK, *_FIRST, _LAST, _result(9, _REPORT))
    answered = (*_FIRST, {"role": "assistant", "content": "It is 7 °C."}, _AND)
    yield _turns("user_message_in_the_middle", _SYSTEM, _ASK, *answered, _LAST, _result(9, _REPORT))
    yield _turns("user_message_at_the_end", _SYSTEM, _ASK, *_FIRST, {"role": "assistant", "content": BODY}, _AND)
    thinking = {"reasoning_content": "I have to look."}
    yield _turns("thinking", _ASK, _calling(_call(9, "weather", BODY), **thinking), _result(9, _REPORT))
    yield _turns("thinking_and_user_message", _ASK, {"role": "assistant", "content": BODY, **thinking}, _AND)


PROBES: Final[tuple[ProbeConversation, ...]] = tuple(_all())
