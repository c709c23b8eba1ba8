"""Converts a rollout to the data that the page shows, in one form whatever the model or a server sent.

Texts are `{"t": text}`, with `"cut": n` if n characters were left out. Everything else has a bounded size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

View = dict[str, Any]

_MAX_NAME: Final = 300
_MESSAGE_KEYS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "reasoning_details"}
)


def row_view(outcome: Mapping[str, Any], line: int) -> View:
    """Return what the table of rollouts shows and filters by."""
    counters, timings = _mapping(outcome.get("counters")), _mapping(outcome.get("timings"))
    reward = _number(outcome.get("reward")) if outcome.get("reward_status") == "ok" else None
    dropped = outcome.get("disposition") == "drop"
    tokens = [_number(counters.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    failure = _mapping(outcome.get("failure") or outcome.get("reward_failure"))
    return {
        "line": line,
        "id": _name(outcome.get("rollout_id")),
        "task": _name(outcome.get("task_id")),
        "reward": None if dropped else reward,
        "dropped_reward": reward if dropped else None,
        "status": _name(outcome.get("reward_status")),
        "stop": _name(outcome.get("stop_reason")),
        "disposition": _name(outcome.get("disposition", "")),
        "turns": _number(outcome.get("turns")),
        "errors": len(_sequence(outcome.get("tool_errors"))),
        "tokens": sum(value for value in tokens if value is not None),
        "seconds": _number(timings.get("total")),
        "failure": f"{_name(failure.get('blame'))}: {_name(failure.get('type'))}" if failure else "",
    }


def detail_view(outcome: Mapping[str, Any]) -> View:
    """Return what the page shows of one opened rollout."""
    errors = [_error(error) for error in _sequence(outcome.get("tool_errors"))]
    messages = [_message(message) for message in _sequence(outcome.get("messages"))]
    _mark_errors(messages, outcome)
    final = _content(outcome.get("final_response"))
    facts = ("group_id", "index", "split", "seed", "attempt", "disposition")
    return {
        "facts": [[name, _name(outcome.get(name))] for name in facts],
        "messages": messages,
        "final": None if any(message["text"]["t"] == final for message in messages) else _text(final),
        "parts": [[_name(name), _number(value)] for name, value in _mapping(outcome.get("reward_parts")).items()],
        "reward_detail": _text(_content(outcome.get("reward_detail"))),
        "failures": [
            {"phase": phase, **{key: _text(_content(failure.get(key))) for key in ("blame", "type", "message")}}
            for phase, key in (("rollout", "failure"), ("reward", "reward_failure"))
            if (failure := _mapping(outcome.get(key)))
        ],
        "tool_errors": errors,
        "timings": [[_name(name), _number(value)] for name, value in _mapping(outcome.get("timings")).items()],
        "counters": [[_name(name), _name(value)] for name, value in _mapping(outcome.get("counters")).items()],
        "exactness": [[_name(name), _name(value)] for name, value in _exactness(outcome)],
        "provenance": _text(_json(outcome.get("provenance") or {})),
    }


def _exactness(outcome: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the figures of a rollout's exactness report that are not empty, and its faults."""
    for name, value in _mapping(outcome.get("exactness")).items():
        if name == "faults":
            yield from (("fault", fault) for fault in _sequence(value))
        elif name != "counts" and value not in (None, {}, []):
            yield name, value


def shorten(value: Any, limit: int) -> Any:
    """Cut every text of a view to its first `limit` characters, and say how many were left out."""
    if isinstance(value, list):
        return [shorten(item, limit) for item in value]
    if not isinstance(value, dict):
        return value
    text = value.get("t")
    if not isinstance(text, str):
        return {key: shorten(item, limit) for key, item in value.items()}
    if len(text) <= limit:
        return value
    return {"t": text[:limit], "cut": value.get("cut", 0) + len(text) - limit}


def lengths(value: Any) -> Iterator[int]:
    """Yield the length of every text of a view."""
    if isinstance(value, list):
        for item in value:
            yield from lengths(item)
    elif isinstance(value, dict):
        if "t" in value:
            yield len(value["t"])
        else:
            yield from lengths(list(value.values()))


def _message(value: object) -> View:
    """Return a message without empty fields, because there are many messages."""
    message = _mapping(value)
    if not message:
        return {"role": "?", "text": _text(_content(value))}
    view: View = {"role": _name(message.get("role")), "text": _text(_content(message.get("content")))}
    reasoning = [message.get(key) for key in ("reasoning_content", "reasoning", "reasoning_details")]
    if thought := next((text for part in reasoning if (text := _content(part))), ""):
        view["reasoning"] = _text(thought)
    if calls := _sequence(message.get("tool_calls")):
        view["calls"] = [_call(call) for call in calls]
    for name, key in (("name", "name"), ("call_id", "tool_call_id")):
        if message.get(key):
            view[name] = _name(message[key])
    if extra := {key: item for key, item in message.items() if key not in _MESSAGE_KEYS and item not in (None, [], {})}:
        view["extra"] = _text(_json(extra))
    return view


def _call(value: object) -> View:
    call = _mapping(value)
    function = _mapping(call.get("function")) or call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _json(arguments)
    return {"id": _name(call.get("id") or ""), "name": _name(function.get("name")), "args": _text(text)}


def _error(value: object) -> View:
    error = _mapping(value)
    texts = {key: _text(_content(error.get(key))) for key in ("arguments", "error", "tool_result")}
    return {"turn": _name(error.get("turn")), "tool": _name(error.get("tool_name")), **texts}


def _mark_errors(messages: Sequence[View], outcome: Mapping[str, Any]) -> None:
    """Attach each recorded tool error to its call: same tool and beginning of arguments, in that turn if possible."""
    answers = [message for message in messages if message["role"] == "assistant"]
    # A task's own messages may hold assistant turns; the rollout's turns are the last ones.
    first = len(answers) - int(_number(outcome.get("turns")) or 0)
    calls = [(number - first + 1, call) for number, answer in enumerate(answers) for call in answer.get("calls", ())]
    for number, error in enumerate(map(_mapping, _sequence(outcome.get("tool_errors")))):
        name, arguments, turn = _name(error.get("tool_name")), _content(error.get("arguments"))[:150], error.get("turn")
        fitting = [
            (at != turn, call)
            for at, call in calls
            if "error" not in call and call["name"] == name and call["args"]["t"].startswith(arguments)
        ]
        if fitting:
            min(fitting, key=lambda pair: pair[0])[1]["error"] = number


def _content(value: object) -> str:
    """Return a message's content as text: None, a string, a list of parts, or anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_part(part) for part in value)
    return _json(value)


def _part(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else _json(part)


def _text(text: str) -> View:
    return {"t": text}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _name(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
