"""The regular expressions of a template, parsed into a tree of constructs that can be matched without backtracking.

Supported is what real templates use: literals, classes, groups, alternatives, greedy and lazy repeats, the anchors of
the text's ends, and a lookahead (to which `template` gives a special meaning). The dialect is Python's with DOTALL, as
`transformers` compiles them. Everything else is refused: backreferences and lookarounds need backtracking, and for
unknown constructs linear time cannot be guaranteed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_CATEGORIES: Final = frozenset("sSdDwW")
_ENDS: Final = {"A": True, "Z": False, "z": False}
_BOUNDS: Final = re.compile(r"\{(\d{0,4})(,?)(\d{0,4})\}")
_NAME: Final = re.compile(r"\?P<([A-Za-z_][A-Za-z0-9_]*)>")
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_LONGEST: Final = 4096
_MOST_REPEATS: Final = 1000


class PatternError(ValueError):
    """A pattern is not supported or cannot be matched in linear time; the message says which part and why."""


class Literal(NamedTuple):
    """Text that stands for itself."""

    text: str


class Run(NamedTuple):
    """Characters of one class, repeated; `chars` is the class as `re` writes it, `high` None for no limit."""

    chars: str
    low: int
    high: int | None
    lazy: bool


class Group(NamedTuple):
    """A named capture."""

    name: str
    body: Sequence


class Choice(NamedTuple):
    """Alternatives, the first that fits; an optional part is a choice with an empty alternative."""

    branches: tuple[Sequence, ...]


class Repeat(NamedTuple):
    """A repeated group: anything except a single class."""

    body: Sequence
    low: int
    high: int | None


class Edge(NamedTuple):
    """The beginning or the end of the text."""

    is_start: bool


class Ahead(NamedTuple):
    """A lookahead."""

    body: Sequence


Node = Literal | Run | Group | Choice | Repeat | Edge | Ahead
Sequence = tuple[Node, ...]


def read_pattern(pattern: str) -> Sequence:
    """Read a regular expression.

    Raises:
        PatternError: It is not valid, or has an unsupported construct.
    """
    if len(pattern) > _LONGEST:
        raise PatternError(f"it has {len(pattern)} characters, at most {_LONGEST} are read")
    try:
        re.compile(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        # `re` warns of classes whose meaning will change; under -W error the warning is an exception.
        raise PatternError(f"it is not a valid regular expression: {error}") from error
    return _Reader(pattern).all()


def names(sequence: Sequence) -> Iterator[str]:
    """Yield the names of the captures, in order."""
    for node in sequence:
        if isinstance(node, Group):
            yield node.name
        for body in bodies(node):
            yield from names(body)


def bodies(node: Node) -> tuple[Sequence, ...]:
    """Return the sequences a node is made of."""
    if isinstance(node, Choice):
        return node.branches
    return (node.body,) if isinstance(node, Group | Repeat | Ahead) else ()


class _Reader:
    """Recursive descent over a pattern that `re` has accepted, so nesting and brackets are valid."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def all(self) -> Sequence:
        sequence = self._alternatives()
        if self._at < len(self._pattern):
            self._refuse("an unexpected closing bracket")
        return sequence

    def _alternatives(self) -> Sequence:
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else (Choice(tuple(branches)),)

    def _sequence(self) -> Sequence:
        nodes: list[Node] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            for node in self._quantify(self._atom()):
                if isinstance(node, Literal) and nodes and isinstance(nodes[-1], Literal):
                    nodes[-1] = Literal(nodes[-1].text + node.text)
                else:
                    nodes.append(node)
        return tuple(nodes)

    def _atom(self) -> Sequence:
        char = self._pattern[self._at]
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            self._at -= 1
            return (Run(self._class(), 1, 1, lazy=False),)
        if char == ".":
            return (Run(r"[\s\S]", 1, 1, lazy=False),)
        if char in "^$":
            return (Edge(is_start=char == "^"),)
        if char == "\\":
            return (self._escape(),)
        return (Literal(char),)

    def _group(self) -> Sequence:
        wrap = None
        if named := _NAME.match(self._pattern, self._at):
            wrap, self._at = named.group(1), named.end()
        elif self._takes("?="):
            body = self._group_body()
            return (Ahead(body),)
        elif self._takes("?:"):
            pass
        elif self._pattern.startswith("?", self._at):
            self._refuse(f"the construct {self._pattern[self._at - 1 : self._at + 3]!r}")
        body = self._group_body()
        return body if wrap is None else (Group(wrap, body),)

    def _group_body(self) -> Sequence:
        body = self._alternatives()
        self._at += 1
        return body

    def _class(self) -> str:
        found = _CLASS.match(self._pattern, self._at)
        assert found is not None
        self._at = found.end()
        return found.group()

    def _escape(self) -> Node:
        char = self._pattern[self._at]
        self._at += 1
        if char in _CATEGORIES:
            return Run(f"[\\{char}]", 1, 1, lazy=False)
        if char in _ENDS:
            return Edge(is_start=_ENDS[char])
        if char in "xuU":
            return Literal(self._code({"x": 2, "u": 4, "U": 8}[char]))
        if char in _ESCAPES:
            return Literal(_ESCAPES[char])
        if char.isalnum():
            self._refuse(f"the escape '\\{char}'")
        return Literal(char)

    def _code(self, digits: int) -> str:
        code = self._pattern[self._at : self._at + digits]
        self._at += digits
        return chr(int(code, 16))

    def _quantify(self, atom: Sequence) -> Sequence:
        quantity = self._quantity()
        if quantity is None:
            return atom
        low, high = quantity
        if max(low, high or 0) > _MOST_REPEATS:
            self._refuse(f"a repeat of more than {_MOST_REPEATS}")
        if self._takes("+"):
            self._refuse("a possessive repeat")
        lazy = self._takes("?")
        if len(atom) == 1 and isinstance(atom[0], Run) and (atom[0].low, atom[0].high) == (1, 1):
            return (Run(atom[0].chars, low, high, lazy),)
        if len(atom) == 1 and isinstance(atom[0], Literal) and len(atom[0].text) == 1 and high != 1:
            return (Run(f"[{re.escape(atom[0].text)}]", low, high, lazy),)
        if (low, high) == (0, 1):
            return (Choice(((), atom) if lazy else (atom, ())),)
        if lazy:
            self._refuse("a lazy repeat of a group")
        return (Repeat(atom, low, high),)

    def _quantity(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(mark):
                return bounds
        found = _BOUNDS.match(self._pattern, self._at)
        if found is None or not (found.group(1) or found.group(3)):
            return None
        self._at = found.end()
        low = int(found.group(1) or 0)
        if not found.group(2):
            return low, low
        return low, int(found.group(3)) if found.group(3) else None

    def _takes(self, mark: str) -> bool:
        takes = self._pattern.startswith(mark, self._at)
        if takes:
            self._at += len(mark)
        return takes

    def _refuse(self, what: str) -> NoReturn:
        raise PatternError(f"{what} at character {self._at} is not supported")
