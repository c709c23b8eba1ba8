"""The tasks: find a code in the files of a sandbox. Only a tool's output holds it.

A question names a colour; the file of that colour holds the code, or names the file that does. All files look alike, so
that a model that knows how to call `read_file` but not which file to read finds the right code only by luck.

The held-out tasks have pairs of a colour and the colour that its file names; in training, no file of the first names
the second. Each colour is asked about, and named, in training and in the held-out tasks. So a held-out task needs what
was learnt, twice in a row, in a combination that training never had.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

Split = Literal["train", "test"]
Message = dict[str, Any]

COLOURS: Final = ("red", "blue", "green", "gold", "white", "black", "pink", "brown")
THINGS: Final = (
    "box", "cup", "door", "hat", "key", "lamp", "map", "book",
    "coat", "ring", "ship", "tree", "bag", "chair", "clock", "desk",
)  # fmt: skip
_HELD_OUT: Final = (1, 2)
"""The distance between the requested colour and the one named by its file in held-out tasks, in the seed's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question, its files, and the answer."""

    id: str
    question: str
    files: Mapping[str, str]
    path: tuple[str, ...]
    """The files to read, in this order."""
    answer: str


def tasks(split: Split, seed: int) -> Iterator[Task]:
    """Yield tasks forever; a seed's held-out tasks are chains that do not occur in its training tasks.

    Half of the training tasks are chains, and all of the held-out ones.
    """
    chance = random.Random(f"{split}-{seed}")  # noqa: S311 - reproducible tasks, nothing to guard
    held_out = held_out_chains(seed)
    chains = [(first, then) for first in COLOURS for then in COLOURS if first != then]
    drawn: list[tuple[str, str | None]] = [pair for pair in chains if (pair in held_out) == (split == "test")]
    if split == "train":
        drawn += [(colour, None) for colour in COLOURS] * (len(drawn) // len(COLOURS))
    for number in count():
        place = number % len(drawn)
        if not place:
            chance.shuffle(drawn)
        yield _task(f"{split}-{seed}-{number}", *drawn[place], chance)


def held_out_chains(seed: int) -> frozenset[tuple[str, str]]:
    """Return the pairs of colours (requested, and named by its file) that only held-out tasks have."""
    colours = list(COLOURS)
    random.Random(f"held-out-{seed}").shuffle(colours)  # noqa: S311 - as above
    return frozenset(
        (colour, colours[(place + step) % len(colours)]) for place, colour in enumerate(colours) for step in _HELD_OUT
    )


def _task(name: str, colour: str, named: str | None, chance: random.Random) -> Task:
    codes = dict(zip(COLOURS, chance.sample(range(1000, 10_000), len(COLOURS)), strict=True))
    files = {_file(each): f"code {code}\n" for each, code in codes.items()}
    path: tuple[str, ...] = (_file(colour),)
    if named is not None:
        files[_file(colour)] = f"see {named}\n"
        path = (*path, _file(named))
    question = f"code of the {colour} {chance.choice(THINGS)}?"
    return Task(id=name, question=question, files=files, path=path, answer=str(codes[named or colour]))


def _file(colour: str) -> str:
    return f"{colour}.txt"


def reward(task: Task, answer: str) -> float:
    """Return 1 for the code and nothing else, otherwise 0."""
    return float(answer.strip() == task.answer)


def demonstration(task: Task, chance: random.Random) -> list[Message]:
    """Return a rollout that shows the format, but mostly reads files at random.

    It reads until it finds a code, and then answers with that code, right or wrong.
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
"""The share of demonstrations that read the right file on purpose; without any, training finds it too slowly."""


def _call(path: str, number: int) -> Message:
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _answer(path: str, text: str, number: int) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": tool_answer(path, text)}


def tool_answer(path: str, text: str) -> str:
    """Write the result of `read_file` for a file of one line."""
    content = f"     1|{text.removesuffix(chr(10))}"
    fields = {"path": path, "content": content, "total_lines": 1, "truncated": False, "file_size": len(text)}
    return json.dumps(fields)
