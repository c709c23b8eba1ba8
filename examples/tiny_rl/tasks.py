"""The tasks: find a code in the files of a sandbox. Only a tool's output holds it.

A question names a colour; the file of that colour holds the code, or names the file that does. All files look alike, so
that a model that knows how to call `read_file` but not which file to read finds the right code only by luck.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from zlib import crc32

Split = Literal["train", "test"]
Message = dict[str, Any]

COLOURS: Final = ("red", "blue", "green", "gold", "white", "black", "pink", "brown")
THINGS: Final = (
    "box", "cup", "door", "hat", "key", "lamp", "map", "book",
    "coat", "ring", "ship", "tree", "bag", "chair", "clock", "desk",
)  # fmt: skip
_TEST_SHARE: Final = 4
"""One of so many pairs of colour and thing is never trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question, the files it is about, and the answer."""

    id: str
    question: str
    files: Mapping[str, str]
    path: tuple[str, ...]
    """The files to read, in this order."""
    answer: str


def tasks(split: Split, seed: int) -> Iterator[Task]:
    """Yield tasks without end; the two splits ask about different pairs, two seeds have different codes."""
    chance = random.Random(f"{split}-{seed}")  # noqa: S311 - reproducible tasks, nothing to guard
    pairs = [(colour, thing) for colour in COLOURS for thing in THINGS if _split(colour, thing) == split]
    number = 0
    while True:
        chance.shuffle(pairs)
        for colour, thing in pairs:
            yield _task(f"{split}-{seed}-{number}", colour, thing, chance)
            number += 1


def _split(colour: str, thing: str) -> Split:
    return "train" if crc32(f"{colour} {thing}".encode()) % _TEST_SHARE else "test"


def _task(name: str, colour: str, thing: str, chance: random.Random) -> Task:
    codes = dict(zip(COLOURS, chance.sample(range(1000, 10_000), len(COLOURS)), strict=True))
    files = {_file(each): f"code {code}\n" for each, code in codes.items()}
    path: tuple[str, ...] = (_file(colour),)
    answer = codes[colour]
    if chance.random() < 0.5:
        other = chance.choice([each for each in COLOURS if each != colour])
        files[_file(colour)] = f"see {other}\n"
        path, answer = (_file(colour), _file(other)), codes[other]
    return Task(id=name, question=f"code of the {colour} {thing}?", files=files, path=path, answer=str(answer))


def _file(colour: str) -> str:
    return f"{colour}.txt"


def reward(task: Task, answer: str) -> float:
    """Return 1 for the code and nothing else, otherwise 0."""
    return float(answer.strip() == task.answer)


def demonstration(task: Task, chance: random.Random) -> list[Message]:
    """Return a rollout that shows the format, but mostly reads files at random.

    It reads until it finds a code, as the tool would answer, and then answers that code, right or wrong.
    """
    messages: list[Message] = [{"role": "user", "content": task.question}]
    wanted = task.path[0]
    for _ in range(_MOST_READ):
        path = wanted if chance.random() < _ORACLE_SHARE else chance.choice(sorted(task.files))
        messages += [_call(path, len(messages)), _answer(path, task.files[path], len(messages))]
        word, value = task.files[path].split()
        if word == "code":
            return [*messages, {"role": "assistant", "content": value}]
        wanted = _file(value)
    return [*messages, {"role": "assistant", "content": "none"}]


_MOST_READ: Final = 3
_ORACLE_SHARE: Final = 0.25
"""How often a demonstration reads the right file on purpose; from nothing at all reinforcement finds it too slowly."""


def _call(path: str, number: int) -> Message:
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _answer(path: str, text: str, number: int) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": tool_answer(path, text)}


def tool_answer(path: str, text: str) -> str:
    """Write what `read_file` answers for a file of one line."""
    content = f"     1|{text.removesuffix(chr(10))}"
    fields = {"path": path, "content": content, "total_lines": 1, "truncated": False, "file_size": len(text)}
    return json.dumps(fields)
