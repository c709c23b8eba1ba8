"""A function is named by a verb for what it does or by a noun for what it gives, not by a bare participle."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace import packages

ALLOWED = Path(__file__).parents[1] / "participles.toml"
_IRREGULAR = (
    "begun bought broken brought built caught chosen done drawn driven fallen fed felt forgotten found "
    "frozen given gone gotten grown heard held hidden kept known laid led left lent lost made met "
    "overridden paid said seen sent shown slept sold spent spoken stolen stood sunk swept taken taught "
    "thought thrown told torn understood withheld won worn written"
)
"""Those that are no base form as well, as `read`, `set` and `split` are."""
IRREGULAR = frozenset(_IRREGULAR.split())
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed", "succeed"}
_PARTICLES = "after again among around as at away before by for from here if in into of off on once out to up with"
PARTICLES = frozenset(_PARTICLES.split())


def is_bare_participle(name: str) -> bool:
    """Tell whether a name is a participle with nothing, or no more than a particle, behind it."""
    first, *rest = name.strip("_").split("_")
    regular = first.endswith("ed") and first not in NO_PARTICIPLES
    return (regular or first in IRREGULAR) and (not rest or rest[0] in PARTICLES)


def functions(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions; of properties, which are adjectives where they are read, none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter"}:
                yield node.name


@pytest.mark.parametrize("name", ["_shown", "ended", "made_up", "_known_to_the_driver", "held_from", "refused"])
def test_a_participle_is_known_by_its_form(name):
    assert is_bare_participle(name)


@pytest.mark.parametrize(
    "name", ["need", "_feed", "known_names", "installed_version", "find", "is_closed", "read", "split"]
)
def test_a_verb_a_noun_and_a_noun_with_a_participle_are_none(name):
    assert not is_bare_participle(name)


def test_functions_named_by_a_bare_participle_become_fewer():
    found: Counter[str] = Counter()
    for package in packages():
        for path in sorted((package.folder / "src").rglob("*.py")):
            names = functions(ast.parse(path.read_text(encoding="utf-8")))
            found[package.name] += sum(map(is_bare_participle, names))
    allowed = tomllib.loads(ALLOWED.read_text(encoding="utf-8"))["functions"]
    more = {name: count for name, count in found.items() if count > allowed.get(name, 0)}
    assert not more, f"name these by what they do (`check`) or give (`reasons`), not `checked`: {more}"
    fewer = {name: found[name] for name, count in allowed.items() if count > found[name]}
    assert not fewer, f"well done; write the new numbers into {ALLOWED.name}: {fewer}"
