"""A function is named by a verb for what it does or by a noun for what it gives, not by a bare participle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_imports import parse
from workspace import ROOT, Package, packages

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


def participles(path: Path) -> Iterator[str]:
    """Yield the functions of a file that are named so; no properties, which are adjectives where they are read."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_bare_participle(node.name):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter"}:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"


@pytest.mark.parametrize("name", ["_shown", "ended", "made_up", "_known_to_the_driver", "held_from", "refused"])
def test_a_participle_is_known_by_its_form(name):
    assert is_bare_participle(name)


@pytest.mark.parametrize(
    "name", ["need", "_feed", "known_names", "installed_version", "find", "is_closed", "read", "split"]
)
def test_a_verb_a_noun_and_a_noun_with_a_participle_are_none(name):
    assert not is_bare_participle(name)


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_no_function_is_named_by_a_bare_participle(package: Package):
    found = [name for path in sorted((package.folder / "src").rglob("*.py")) for name in participles(path)]
    assert found == [], "name these by what they do (`check`) or give (`reasons`), not `checked`"
