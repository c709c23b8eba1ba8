"""Write delimiters: the simplest text that a pattern matches, with a call's name in it."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_parsers.declarative.patterns.first_sets import holds
from hermes_parsers.declarative.patterns.syntax import Ahead, Choice, Edge, Group, Literal, Node, Repeat, Run, Sequence


def spell(nodes: Sequence, captures: Mapping[str, str]) -> str:
    """Write a text that a pattern matches, without its optional parts.

    Raises:
        ValueError: The pattern leaves open what to write.
    """
    return "".join([_spell_node(node, captures) for node in nodes])


def _spell_node(node: Node, captures: Mapping[str, str]) -> str:
    if isinstance(node, Literal):
        return node.text
    if isinstance(node, Group):
        return captures[node.name] if node.name in captures else spell(node.body, captures)
    if isinstance(node, Run):
        return _some(node.chars) * node.low if node.low else ""
    if isinstance(node, Choice):
        return _space(node) if () in node.branches else spell(node.branches[0], captures)
    if isinstance(node, Repeat):
        return spell(node.body, captures) * node.low
    assert isinstance(node, Edge | Ahead)
    return ""


def _space(node: Choice) -> str:
    """Return optional white space; a pattern names it only if the model writes it."""
    parts = [part for branch in node.branches for part in branch]
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Literal) and parts[0].text.isspace() else ""


def _some(chars: str) -> str:
    for char in " \n":
        if holds(chars, char):
            return char
    raise ValueError(f"the metadata allows any of {chars} in a mark and does not say which to write")
