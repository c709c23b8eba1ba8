"""Patterns repeat only characters, classes or atomic groups possessively, as Python 3.11.0 to 3.11.4 require.

After a plain group that failed half-way, these versions continue after the part that matched (CPython's gh-106052).
Newer versions do not, so no other test would fail there. The test reads the sources of all packages.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = [r"(?:ab?c)*+", r"(a|b)?+", r"(?>(?:[)(]|\()++)", r"x(?:y{1,2}){0,9}+z", r")*+"]
ACCEPTED = [r"(?>ab?c)*+", r"[()]*+\)*+", r"(?>(a|b))?+", r"(?:a(?>b)*+)*", r"(?>(?>a)?+b){0,2}+", "'()*+,"]

# An escape, a class, an empty group, which only a list of characters has, what opens another group, or what closes it
# with the possessive repeat behind it.
TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\)|(?P<opens>\((?:\?>)?)|\)(?P<repeat>(?:[*+?]|\{[^{}]*\})\+)?", re.DOTALL
)


def plain_groups(pattern):
    """Return the groups of a pattern that are repeated possessively and not atomic."""
    found, opened = [], []
    for token in TOKEN.finditer(pattern):
        if token["opens"]:
            opened.append(token)
        elif token[0].startswith(")"):
            opening = opened.pop() if opened else None
            if token["repeat"] and (opening is None or opening["opens"] != "(?>"):
                found.append(pattern[opening.start() if opening else 0 : token.end()])
    return found


def literals(node):
    """Return all literals in a source with their lines; `(...)` stands for a value in an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return [(node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1"))]
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "(...)" for part in node.values]
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return [(node.lineno, "".join(parts)), *[each for value in values for each in literals(value)]]
    return [each for child in ast.iter_child_nodes(node) for each in literals(child)]


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_plain_group_is_found(pattern):
    assert len(plain_groups(pattern)) == 1


@pytest.mark.parametrize("pattern", ACCEPTED)
def test_characters_classes_and_atomic_groups_pass(pattern):
    assert plain_groups(pattern) == []


def test_no_pattern_repeats_a_plain_group_possessively():
    sources = {
        path.relative_to(ROOT): path.read_bytes()
        for folder in (ROOT, ROOT / "plugins")
        for path in folder.glob("*/src/**/*.py")
    }
    wrong = [
        f"{path}:{line}: write {group} with an atomic group, (?>...), for Python before 3.11.5"
        for path, source in sources.items()
        if re.search(rb"[*+?}]\+", source)  # only for speed
        for line, text in literals(ast.parse(source))
        for group in plain_groups(text)
    ]
    assert Path("hermes_parsers/src/hermes_parsers/engine/scanning/scan.py") in sources
    assert not wrong, "\n".join(wrong)
