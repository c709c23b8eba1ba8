"""Broken messages for fuzzing parsers: changes of characters, tokens and marks."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

_LONGEST: Final = 2_000
_TOKEN: Final = re.compile(r"</?[^<>\s\"'=]*[>=]?|\[/?[A-Z_]+\]|\w+|\s+|[^\w\s]")
_QUOTE: Final = r"(?:[\"']|<\|\"\|>|<escape>)"
_QUOTED: Final = re.compile(rf"{_QUOTE}([^\"'<>\n]{{1,40}}){_QUOTE}")
BARE_TEXTS: Final = (
    "12-34",
    "+49 30",
    "New York, NY",
    "007",
    "1e5",
    "1.",
    "-",
    "true story",
    "null and void",
    "[1",
    "x y",
)
"""Texts that begin like numbers, words or lists: without quotes, only the following text shows that they are not."""
_WORD: Final = re.compile(r"\w+")
_BLANKS: Final = ("", "", " ", "\n", "\t ", "null", "3", "{}")
"""Values in place of a name that are not names."""


def spoilt(chance: random.Random, messages: Sequence[str], pieces: Sequence[str]) -> str:
    """Return a message with one to four changes, of characters or of tokens."""
    text = chance.choice(messages)
    if chance.random() < 0.1:
        text = _without_quotes(chance, text)
    if chance.random() < 0.5:
        return _with_other_tokens(chance, text, messages, pieces)[:_LONGEST]
    for _ in range(chance.randint(1, 4)):
        text = _change(chance, text, messages, pieces)[:_LONGEST]
    return text


def bare(text: str, value: str, replacement: str) -> str:
    """Return a message with a text in place of a value, without the quotes around it."""
    return re.sub(rf"{_QUOTE}?{re.escape(value)}{_QUOTE}?", lambda _: replacement, text)


def _without_quotes(chance: random.Random, text: str) -> str:
    found = list(_QUOTED.finditer(text))
    if not found:
        return text
    one = chance.choice(found)
    return text[: one.start()] + chance.choice([one[1], *BARE_TEXTS]) + text[one.end() :]


def nameless(text: str, name: str) -> list[str]:
    """Return a message's variants with nothing, or something that is not a name, in place of a name."""
    found = [text.replace(name, blank) for blank in ("", " ", "\n", "\t\n ", "\u200b", "\u2060\ufeff", "''", '""')]
    # In JSON, a value that is not a string is not a name.
    quoted = re.compile(rf'(:\s*)"{re.escape(name)}"')
    found += [quoted.sub(rf"\g<1>{other}", text) for other in ("null", "3", "[]", "{}", "true", '" "')]
    return [variant for variant in found if variant != text]


def _change(chance: random.Random, text: str, messages: Sequence[str], pieces: Sequence[str]) -> str:
    start = chance.randint(0, len(text))
    end = min(len(text), start + chance.choice([1, 1, 2, 5, 12, 40]))
    after = chance.randint(end, len(text))
    other = chance.choice(messages)
    changes = {
        "delete": text[:start] + text[end:],
        "double": text[:end] + text[start:],
        "insert": text[:start] + chance.choice(pieces) + text[start:],
        "replace": text[:start] + chance.choice(pieces) + text[end:],
        "swap": text[:start] + text[end:after] + text[start:end] + text[after:],
        "move": text[:start] + text[end:after] + text[after:] + text[start:end],
        "truncate": text[:start],
        "splice": text[:start] + other[chance.randint(0, len(other)) :],
        "append": text + other,
    }
    return changes[chance.choice(list(changes))]


def _with_other_tokens(chance: random.Random, text: str, messages: Sequence[str], pieces: Sequence[str]) -> str:
    """Shuffle, repeat, drop or replace tokens of a message, or write new text of only marks."""
    tokens = _TOKEN.findall(text)
    others = _TOKEN.findall(chance.choice(messages))
    marks = [token for token in tokens + others if not _WORD.fullmatch(token)] or [" "]
    if chance.random() < 0.2:
        some = [marks if chance.random() < 0.8 else others for _ in range(chance.randint(2, 30))]
        return "".join([chance.choice(kind) for kind in some if kind])
    for _ in range(chance.randint(1, 6)):
        _change_tokens(chance, tokens, others, [*marks, chance.choice(pieces)])
    return "".join(tokens)


def _change_tokens(chance: random.Random, tokens: list[str], others: Sequence[str], marks: Sequence[str]) -> None:
    at = chance.randint(0, max(0, len(tokens) - 1))
    end = at + chance.choice([1, 1, 1, 2, 4, 9])
    some = tokens[at:end]
    mark = chance.choice(marks)
    kind = chance.randrange(8)
    if kind == 0:
        chance.shuffle(some)
    elif kind == 1:
        some = some * 2
    elif kind == 2:
        some = []
    elif kind == 3:
        some = [*some, mark]
    elif kind == 4:
        some = [mark[: chance.randint(0, len(mark))], *some]
    elif kind == 5:
        some = [chance.choice(others)] if others else []
    elif kind == 6:
        some = [chance.choice(_BLANKS) if _WORD.fullmatch(token) else token for token in some]
    else:
        some = [token for token in tokens if token not in some]
        at, end = 0, len(tokens)
    tokens[at:end] = some
