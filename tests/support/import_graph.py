"""Which module of the workspace imports which: when it is loaded, inside its functions, and for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Edges = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One imported name, or a whole module where `name` is empty."""

    module: str
    name: str = ""
    bound: str = ""
    is_for_types: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of the workspace, with all its imports."""

    is_front: bool
    imports: tuple[Name, ...]
    is_lazy: bool

    @classmethod
    def read(cls, path: Path, name: str) -> Module:
        """Read a file."""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_init = path.name == "__init__.py"
        package = name if is_init else name.rpartition(".")[0]
        lazy = any(
            "= lazy_exports(" in ast.unparse(node) for node in tree.body if isinstance(node, ast.If | ast.Assign)
        )
        return cls(is_front=is_init or lazy, imports=tuple(_imports(tree, package)), is_lazy=lazy)


def _imports(tree: ast.AST, package: str) -> Iterator[Name]:
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, for_types = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += [(child, True) for child in node.body] + [(child, for_types) for child in node.orelse]
            continue
        if isinstance(node, ast.Import):
            yield from (Name(module=alias.name, is_for_types=for_types) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            for alias in node.names:
                bound = alias.asname or alias.name
                yield Name(module=module, name=alias.name, bound=bound, is_for_types=for_types)
        pending += [(child, for_types) for child in ast.iter_child_nodes(node)]


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def import_edges(sources: Iterable[Path]) -> Edges:
    """Return, for each module below the folders, the modules below them that it imports.

    A name that a package's front hands on counts as of the module that it comes from. What a front imports on demand
    is no import of the front: it says its names to type checkers only.
    """
    found = {name: Module.read(path, name) for source in sources for path, name in _files(source)}
    edges: dict[str, frozenset[str]] = {}
    for name, module in found.items():
        wanted = [one for one in module.imports if not (module.is_lazy and one.is_for_types)]
        edges[name] = frozenset(_home(found, one.module, one.name) for one in wanted) & (found.keys() - {name})
    return edges


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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
