"""Which module of the workspace imports which: when it is loaded, inside its functions, and for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from source_imports import Import, module_name, parse, read_imports

Edges = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of the workspace, with all its imports."""

    is_front: bool
    imports: tuple[Import, ...]
    is_lazy: bool

    @classmethod
    def read(cls, path: Path, source: Path) -> Module:
        """Read a file below the folder that is on Python's path."""
        lazy = any(
            "= lazy_exports(" in ast.unparse(node) for node in parse(path).body if isinstance(node, ast.If | ast.Assign)
        )
        is_front = path.name == "__init__.py" or lazy
        return cls(is_front=is_front, imports=tuple(read_imports(path, source)), is_lazy=lazy)


def import_edges(sources: Iterable[Path]) -> Edges:
    """Return, for each module below the folders, the modules below them that it imports.

    A name that a package's front hands on counts as of the module that it comes from. What a front imports on demand
    is no import of the front: it says its names to type checkers only.
    """
    found = {
        module_name(path, source): Module.read(path, source) for source in sources for path in source.rglob("*.py")
    }
    edges: dict[str, frozenset[str]] = {}
    for name, module in found.items():
        wanted = [one for one in module.imports if not (module.is_lazy and one.is_for_types)]
        edges[name] = frozenset(_home(found, one.module, one.name) for one in wanted) & (found.keys() - {name})
    return edges


def _home(found: Mapping[str, Module], module: str, name: str) -> str:
    """Return the module that a name comes from, as far as it can be followed through the fronts of packages."""
    if f"{module}.{name}" in found:
        return f"{module}.{name}"
    front = found.get(module)
    origin = next((one for one in front.imports if one.bound == name), None) if front and front.is_front else None
    if not name or origin is None or origin.module == module:
        return module
    return _home(found, origin.module, origin.name)


def circles(edges: Edges) -> list[list[str]]:
    """Return the groups of modules that import each other, however many others are between them."""
    left = dict(edges)
    while ends := [name for name, used in left.items() if not used & left.keys()]:
        for name in ends:
            del left[name]
    reach = {name: _reachable(name, left) for name in left}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in left}
    return sorted(sorted(group) for group in groups if group)


def _reachable(name: str, edges: Edges) -> set[str]:
    reached: set[str] = set()
    pending = [name]
    while pending:
        new = (edges[pending.pop()] & edges.keys()) - reached
        reached |= new
        pending += new
    return reached
