"""The delimiters that open and close a field: literals or a pattern.

Both become one step and the literals to search for it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

from hermes_parsers.declarative.errors import TemplateError, fault
from hermes_parsers.declarative.patterns.first_sets import END, Heads, heads, holds, overlap
from hermes_parsers.declarative.patterns.matchers import FAIL, WAIT, Step, Subject, compile_pattern
from hermes_parsers.declarative.patterns.syntax import (
    Ahead,
    Choice,
    Edge,
    Literal,
    Node,
    PatternError,
    Run,
    Sequence,
    bodies,
    names,
    read_pattern,
)
from hermes_parsers.engine.scanning.scan import Scan, Wait

MARK_LIMIT: Final = 256
"""The longest repeat of one class in a mark. With an unbounded mark, all text after it would be held back and copied.
"""
_REMEDY: Final = "write it with literals, classes and lazy '.*?' before a literal; or use 'open'/'close' with a literal"


class Delimiter(NamedTuple):
    """An opening or a closing.

    `marks` are the literals with which a match can begin, after optional space; `weak` are those that are common in
    plain text. `step` matches the whole from a mark on; `leads` says that text before the mark can be part of it,
    `reaches` that a part of it could contain a mark. A writer spells the delimiter from `nodes`.
    """

    nodes: Sequence
    marks: tuple[str, ...]
    weak: tuple[str, ...]
    step: Step
    captures: frozenset[str]
    leads: bool
    reaches: bool

    def match(self, scan: Scan, at: int) -> Wait:
        """Return where a match that begins here ends, or -1."""
        while (end := self._mark_end(Subject(scan.text, final=scan.final), at)) == WAIT:
            yield ""
        return end

    def read(self, scan: Scan, at: int) -> Generator[str, None, tuple[int, dict[str, str]]]:
        """Return where a match that begins here ends, or -1, and its named captures."""
        while True:
            subject = Subject(scan.text, final=scan.final)
            end = self._mark_end(subject, at)
            if end != WAIT:
                return end, {name: subject.capture(name) for name in self.captures}
            yield ""

    def _mark_end(self, subject: Subject, at: int) -> int:
        end = self.step(subject, at)
        if end < 0 or not self.reaches:
            return end
        # The text between the parts of a mark must not contain another such mark: the call there would be lost.
        begun = next((mark for mark in self.marks if subject.text.startswith(mark, at)), None)
        return FAIL if begun is not None and subject.text.find(begun, at + 1, end) >= 0 else end


def delimiter(place: str, field: Mapping[str, Any], key: str) -> Delimiter | None:
    """Read `open` or `open_pattern`, `close` or `close_pattern`; None if the field has neither."""
    nodes = nodes_of(place, field, key)
    if nodes is None:
        return None
    solid = without_space(nodes)
    try:
        step = compile_pattern(solid, limit=MARK_LIMIT)
    except PatternError as error:
        raise _unusable(f"{place}.{key}_pattern", field[f"{key}_pattern"], str(error)) from error
    firsts = _firsts(solid)
    if not firsts or any(not head.literal for head in firsts):
        pattern = field.get(f"{key}_pattern")
        raise _unusable(
            f"{place}.{key}_pattern", pattern, "it does not begin with a literal, so it could match anywhere"
        )
    marks = tuple(sorted(head.literal for head in firsts))
    weak = tuple(mark for mark in marks if not mark.strip(" \t\r\n,;"))
    return Delimiter(nodes, marks, weak, step, frozenset(names(solid)), _leads(solid), _reaches(solid, marks))


def _reaches(nodes: Sequence, marks: tuple[str, ...]) -> bool:
    """Whether a repeat in a pattern could contain one of its marks."""
    solid = [mark for mark in marks if len(mark) > 1]
    for node in nodes:
        if isinstance(node, Run) and any(all(holds(node.chars, char) for char in mark) for mark in solid):
            return True
        if any(_reaches(body, marks) for body in bodies(node)):
            return True
    return False


def _leads(nodes: Sequence) -> bool:
    """Whether a pattern begins with an optional run of a class, possibly after other optional parts."""
    if nodes and isinstance(nodes[0], Choice) and () in nodes[0].branches:
        nodes = nodes[1:]
    return bool(nodes) and isinstance(nodes[0], Run) and nodes[0].low == 0


def _firsts(nodes: Sequence) -> Heads:
    """Return how matches begin after an optional run of a class; the search starts from what follows the run."""
    if nodes and isinstance(nodes[0], Run) and nodes[0].low == 0:
        return _firsts(nodes[1:])
    if len(nodes) > 1 and isinstance(nodes[0], Choice) and () in nodes[0].branches:
        return (heads(nodes[:1]) | _firsts(nodes[1:])) - {END}
    return heads(nodes[:1]) - {END}


def nodes_of(place: str, field: Mapping[str, Any], key: str) -> Sequence | None:
    """Read a delimiter into nodes, literals as alternatives, the longest first."""
    if key in field and f"{key}_pattern" in field:
        raise TemplateError(f"{place} has both '{key}' and '{key}_pattern'", hint=f"remove one of them from {place}")
    if key in field:
        literals = _literals(f"{place}.{key}", field[key])
        ordered = sorted(dict.fromkeys(literals), key=len, reverse=True)
        branches = tuple([(Literal(literal),) for literal in ordered])
        return branches[0] if len(branches) == 1 else (Choice(branches),)
    if f"{key}_pattern" in field:
        return pattern_nodes(f"{place}.{key}_pattern", field[f"{key}_pattern"])
    return None


def pattern_nodes(place: str, pattern: Any) -> Sequence:
    """Read a pattern.

    Raises:
        TemplateError: It is not a valid pattern, or has an unsupported part.
    """
    if not isinstance(pattern, str) or not pattern:
        raise fault(place, "a regular expression as a text", pattern)
    try:
        return read_pattern(pattern)
    except PatternError as error:
        raise _unusable(place, pattern, str(error)) from error


def tag_step(place: str, pattern: Any, nodes: Sequence, *, is_whole: bool) -> Step:
    """Build the step of a tag, or of the text before or after a value; only a value may have any length."""
    try:
        return compile_pattern(nodes, limit=None if is_whole else MARK_LIMIT)
    except PatternError as error:
        raise _unusable(place, pattern, str(error)) from error


def _unusable(place: str, pattern: Any, why: str) -> TemplateError:
    return TemplateError(
        f"{place}: the pattern {pattern!r:.300} cannot be matched in linear time: {why}; it is refused, because a "
        f"backtracking match could hang on a model's output",
        hint=_REMEDY,
    )


def _literals(place: str, value: Any) -> list[str]:
    literals = [value] if isinstance(value, str) else value
    if not isinstance(literals, list | tuple) or not literals:
        raise fault(place, "a text, or a list of texts", value)
    for literal in literals:
        if not isinstance(literal, str) or not literal:
            raise fault(place, "texts that are not empty", literal)
    return list(literals)


def without_space(nodes: Sequence) -> Sequence:
    """Remove optional space at both ends of a pattern: space around marks is framing anyway."""
    while nodes and is_space(nodes[0]):
        nodes = nodes[1:]
    while nodes and is_space(nodes[-1]):
        nodes = nodes[:-1]
    return nodes


def is_space(node: Node) -> bool:
    """Whether a node is optional white space."""
    if isinstance(node, Run):
        return node.low == 0 and not overlap(node.chars, r"\S")
    if isinstance(node, Choice) and () in node.branches:
        parts = [part for branch in node.branches for part in branch]
        return all(is_space(part) or (isinstance(part, Literal) and part.text.isspace()) for part in parts)
    return False


def cores(place: str, nodes: Sequence) -> tuple[str, ...]:
    """Return the literals of a text field's delimiter, without the optional parts around them.

    Raises:
        TemplateError: It consists of more than literals.
    """
    if len(nodes) == 1 and isinstance(nodes[0], Choice):
        return tuple(dict.fromkeys(core for branch in nodes[0].branches for core in cores(place, branch)))
    while nodes and _is_optional(nodes[0]):
        nodes = nodes[1:]
    while nodes and _is_optional(nodes[-1]):
        nodes = nodes[:-1]
    if not nodes:
        return ()
    if len(nodes) == 1 and isinstance(nodes[0], Literal):
        return (nodes[0].text,)
    if len(nodes) == 1 and isinstance(nodes[0], Choice):
        return cores(place, nodes)
    raise TemplateError(
        f"{place}: expected a literal, or one of several, with optional space around it as the delimiter of a text "
        f"field",
        hint="write it as 'open'/'close' with a literal or a list of literals",
    )


def _is_optional(node: Node) -> bool:
    if isinstance(node, Run):
        return node.low == 0
    if isinstance(node, Choice):
        return () in node.branches
    return isinstance(node, Edge | Ahead)
