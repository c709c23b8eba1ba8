"""The cases of the parser comparison: for each behaviour the messages, and how an answer is judged.

All parsers get the same texts and tokens. An answer is a dict with "content" and "calls" (name and arguments as text),
or "error". A judge returns why the answers do not show the behaviour, or "" when they do. A behaviour without messages
for a wire format does not apply there (there is nothing to close, or the family's models write no reasoning).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.parsers.peer_names import FAMILIES
from benchmarks.parsers.wire_formats import Call, Wire

Answer = Mapping[str, Any]
CUTS: Final = (1, 2, 3, 5, 8, 13, 0)
"""Tokens per streamed piece; 0 stands for all of them."""


def _tool(name: str, **kinds: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


TOOLS: Final = (
    _tool("get_weather", city="string", days="integer"),
    _tool("write_file", path="string", text="string"),
    _tool("search", query="string", limit="integer"),
)
WEATHER: Final[Call] = ("get_weather", {"city": "Oslo", "days": 3})
WRITE: Final[Call] = ("write_file", {"path": "a/b.txt", "text": 'line one\nline "two"'})
SEARCH: Final[Call] = ("search", {"query": "two words", "limit": 5})
UNKNOWN: Final[Call] = ("delete_all", {"path": "x"})
EXACT: Final = {"path": "007", "text": '  if x < 1 && y:\n\treturn "é\\n {[}]" # 😀'}
RAW: Final = '{"city":"Os\\u006co",  "days": 3}'
BEFORE: Final = "Let me look."
AFTER: Final = "That is all."


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A behaviour: its key, what it says in a table, its messages for a wire format, and their judge."""

    key: str
    title: str
    jobs: Callable[[Wire], list[dict[str, Any]]]
    judge: Callable[[Wire, Sequence[Answer]], str]


def _whole(text: str, **rest: object) -> list[dict[str, Any]]:
    return [{"text": text, **rest}]


def expect(answer: Answer, calls: Sequence[Call]) -> str:
    """Return how an answer differs from the expected calls."""
    if "error" in answer:
        return f"raises {answer['error']}"
    names = [name for name, _ in answer["calls"]]
    if names != [name for name, _ in calls]:
        return f"finds {', '.join(names) or 'no call'} instead of {', '.join(name for name, _ in calls) or 'no call'}"
    for (name, text), (_, wanted) in zip(answer["calls"], calls, strict=True):
        if _value(text) != wanted:
            return f"arguments of {name} are {text[:80]}"
    return ""


def _value(text: str | None) -> object:
    """Read arguments; None for invalid JSON, including NaN and Infinity."""
    try:
        return json.loads(text or "", parse_constant=_refuse)
    except ValueError:
        return None


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _calls(*calls: Call) -> Callable[[Wire, Sequence[Answer]], str]:
    return lambda _wire, answers: expect(answers[0], calls)


def _content(*parts: str) -> Callable[[Wire, Sequence[Answer]], str]:
    """Judge that the one call is found and the texts are in the content."""

    def judge(_wire: Wire, answers: Sequence[Answer]) -> str:
        content = answers[0].get("content") or ""
        missing = [part for part in parts if part not in content]
        return expect(answers[0], [WEATHER]) or (f"content is {content[:80]!r}" if missing else "")

    return judge


def _hidden(wire: Wire) -> Call:
    return ("write_file", {"path": "a.txt", "text": f"before {wire.closer} after"})


def _truncated(wire: Wire) -> str:
    """Cut the text in the middle of the second call's string."""
    text = wire.calls([WEATHER, WRITE])
    return text[: text.index("line one") + 4]


def _prose(wire: Wire) -> str:
    return wire.prose.format(opener=wire.opener)


def _is_prose(wire: Wire, answers: Sequence[Answer]) -> str:
    content = (answers[0].get("content") or "").strip()
    return expect(answers[0], []) or ("" if content == _prose(wire) else f"content is {content[:80]!r}")


def _mutants(wire: Wire) -> list[dict[str, Any]]:
    """Return the text of two calls with every single character left out, and every second beginning of it."""
    text = wire.calls([WEATHER, WRITE])
    shorter = [text[:at] + text[at + 1 :] for at in range(len(text))]
    return [{"text": mutant} for mutant in (*shorter, *(text[:end] for end in range(1, len(text), 2)))]


def _always_objects(_wire: Wire, answers: Sequence[Answer]) -> str:
    raised = [answer["error"] for answer in answers if "error" in answer]
    texts = [text for answer in answers for _, text in answer.get("calls", ())]
    bad = [text for text in texts if not isinstance(_value(text), dict)]
    of = f"of {len(answers)} damaged messages"
    parts = [f"raises for {len(raised)} {of}, e.g. {raised[0][:80]}"] if raised else []
    parts += (
        [f"hands on {len(bad)} calls whose arguments are not JSON objects {of}, e.g. {bad[0][:60]!r}"] if bad else []
    )
    return "; ".join(parts)


def _kept(_wire: Wire, answers: Sequence[Answer]) -> str:
    answer = answers[0]
    why = expect(answer, [("get_weather", {"city": "Oslo", "days": 3})])
    return why or ("" if answer["calls"][0][1] == RAW else f"arguments are rewritten as {answer['calls'][0][1]}")


def tokens(wire: Wire, text: str) -> list[str]:
    """Split a text into tokens: the family's special tokens, else words of up to five characters."""
    special = "|".join(map(re.escape, FAMILIES[wire.family].tokens))
    return re.findall((special + "|" if special else "") + r" ?\w{1,5}|\s|.", text, flags=re.DOTALL)


def _streams(wire: Wire) -> list[dict[str, Any]]:
    text = ("" if wire.alone else wire.before(BEFORE)) + wire.calls([WEATHER, WRITE, SEARCH])
    pieces = tokens(wire, text)
    sizes = [size or len(pieces) for size in CUTS]
    cuts = [[pieces[at : at + size] for at in range(0, len(pieces), size)] for size in sizes]
    return [{"text": text}, *({"deltas": deltas} for deltas in cuts)]


def _streams_alike(_wire: Wire, answers: Sequence[Answer]) -> str:
    whole, *streamed = (_comparable(answer) for answer in answers)
    bad = [str(size or "all") for size, answer in zip(CUTS, streamed, strict=True) if answer != whole or not answer]
    return f"differs from its own full parse with {', '.join(bad)} tokens a piece" if bad else ""


def _comparable(answer: Answer) -> object:
    """Return the parts to compare: values instead of spellings, and content without outer whitespace."""
    if "error" in answer:
        return None
    calls = [(name, _value(text) or text) for name, text in answer["calls"]]
    return ((answer["content"] or "").strip(), calls)


def _values(wire: Wire) -> list[dict[str, Any]]:
    arguments = json.dumps(EXACT) if wire.kind == "json" else EXACT
    return _whole(wire.calls([("write_file", arguments)]))


def _drafted(wire: Wire) -> list[dict[str, Any]]:
    if not wire.reasoning:
        return []
    reasoning = wire.reasoning.replace("{calls}", wire.calls([SEARCH]))
    return _whole(reasoning + wire.calls([WEATHER]), reasoning=True)


BEHAVIOURS: Final[tuple[Behaviour, ...]] = (
    Behaviour(
        "several",
        "several calls in one message are all found",
        lambda wire: _whole(wire.calls([WEATHER, WRITE, SEARCH])),
        _calls(WEATHER, WRITE, SEARCH),
    ),
    Behaviour(
        "text",
        "text before and after the calls is kept",
        lambda wire: _whole(wire.before(BEFORE) + wire.calls([WEATHER]) + wire.after(AFTER)),
        _content(BEFORE, AFTER),
    ),
    Behaviour(
        "mark_in_string",
        "an end mark inside a string does not end the call",
        lambda wire: _whole(wire.calls([_hidden(wire)])),
        lambda wire, answers: expect(answers[0], [_hidden(wire)]),
    ),
    Behaviour(
        "bad_one",
        "one unreadable call of three leaves the other two",
        lambda wire: _whole(wire.calls([WEATHER, None, SEARCH])),
        _calls(WEATHER, SEARCH),
    ),
    Behaviour(
        "truncated",
        "a call cut off in its arguments is not handed on, the one before it is",
        lambda wire: _whole(_truncated(wire)),
        _calls(WEATHER),
    ),
    Behaviour(
        "unclosed",
        "a complete call whose last end mark is missing is found",
        lambda wire: _whole(wire.calls([WEATHER]).removesuffix(wire.tail)) if wire.tail else [],
        _calls(WEATHER),
    ),
    Behaviour(
        "objects", "whatever is damaged, nothing raises and arguments are JSON objects", _mutants, _always_objects
    ),
    Behaviour(
        "values",
        "strings arrive exactly: escapes, quotes, indentation, `007`",
        _values,
        _calls(("write_file", EXACT)),
    ),
    Behaviour(
        "raw",
        "the arguments' text is the model's own (JSON formats)",
        lambda wire: _whole(wire.calls([("get_weather", RAW)])) if wire.kind == "json" else [],
        _kept,
    ),
    Behaviour(
        "prose",
        "a mark mentioned in prose is text",
        lambda wire: _whole(wire.text_before.format(text=_prose(wire))),
        _is_prose,
    ),
    Behaviour(
        "streaming",
        "streaming gives what the full parse gives, with 1, 2, 3, 5, 8, 13 and all tokens a piece",
        _streams,
        _streams_alike,
    ),
    Behaviour(
        "unknown",
        "a call to a tool that is not in the list is kept (SGLang: only with SGLANG_FORWARD_UNKNOWN_TOOLS)",
        lambda wire: _whole(wire.calls([WEATHER, UNKNOWN])),
        _calls(WEATHER, UNKNOWN),
    ),
    Behaviour("drafts", "a call drafted in reasoning is not run", _drafted, _calls(WEATHER)),
)
