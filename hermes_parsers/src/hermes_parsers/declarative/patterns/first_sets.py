"""First sets: how matches of a pattern may begin. They show whether a choice could need backtracking."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final, NamedTuple

from hermes_parsers.declarative.patterns.syntax import Choice, Group, Literal, Node, Repeat, Run, Sequence


class Head(NamedTuple):
    """A beginning: a literal, or one character of a class; neither if nothing more has to follow."""

    literal: str = ""
    chars: str = ""

    def meets(self, other: Head) -> bool:
        """Whether one text could begin both ways."""
        if self.literal and other.literal:
            return self.literal.startswith(other.literal) or other.literal.startswith(self.literal)
        if self.literal or other.literal:
            return holds(self.chars or other.chars, (self.literal or other.literal)[0])
        return overlap(self.chars, other.chars)


END: Final = Head()
Heads = frozenset[Head]


def heads(sequence: Sequence, follow: Heads = frozenset([END])) -> Heads:
    """Return how matches of a sequence may begin, given the first set of what follows it."""
    for node in reversed(sequence):
        follow = _heads(node, follow)
    return follow


def _heads(node: Node, follow: Heads) -> Heads:
    if isinstance(node, Literal):
        return frozenset([Head(literal=node.text)])
    if isinstance(node, Run):
        first = frozenset([Head(chars=node.chars)])
        return first if node.low else first | follow
    if isinstance(node, Group):
        return heads(node.body, follow)
    if isinstance(node, Repeat):
        return heads(node.body, follow) if node.low else heads(node.body, follow) | follow
    if isinstance(node, Choice):
        return frozenset[Head]().union(*[heads(branch, follow) for branch in node.branches])
    return follow


def meet(some: Heads, others: Heads) -> bool:
    """Whether some text could begin in a way of each set."""
    return any(one.meets(other) for one in some - {END} for other in others - {END})


def holds(chars: str, char: str) -> bool:
    """Whether a class has a character."""
    return re.match(chars, char, re.DOTALL) is not None


@lru_cache(maxsize=256)
def overlap(some: str, others: str) -> bool:
    """Whether two classes have a character in common."""
    # Checks every character, since samples would prove nothing; a few milliseconds, once per pair of classes.
    return re.search(f"(?={some}){others}", "".join(map(chr, range(sys.maxunicode + 1)))) is not None
