"""What a source file imports, and what it uses of the modules that it imports; read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_GUARD = "TYPE_CHECKING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name, or a whole module where `name` is empty."""

    line: int
    module: str
    name: str = ""
    bound: str
    """The name that the importing file has for it: the first part of `module` after `import a.b`."""
    is_for_types: bool
    """Whether only type checkers see it."""
    is_late: bool
    """Whether it is inside a function or a class."""

    @property
    def full_name(self) -> str:
        """The module with the name, as in `module.name`."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def origin(self) -> str:
        """The full name of what `bound` stands for."""
        is_plain = not self.name and self.bound == self.module.partition(".")[0]
        return self.bound if is_plain else self.full_name


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path, source: Path) -> str:
    """Return the full name of a module, by its path below the folder that is on Python's path."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_imports(path: Path, source: Path) -> list[Import]:
    """Return everything that a module imports, wherever in its file, by line; relative imports by their full name."""
    name = module_name(path, source)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return sorted(_walk(parse(path), package), key=lambda one: one.line)


def _walk(node: ast.AST, package: str, *, for_types: bool = False, late: bool = False) -> Iterator[Import]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        module = _absolute(node, package) if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            yield Import(
                line=node.lineno,
                module=module or alias.name,
                name=alias.name if module else "",
                bound=alias.asname or (alias.name if module else alias.name.partition(".")[0]),
                is_for_types=for_types,
                is_late=late,
            )
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    guarded = node.body if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == _GUARD else []
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, package, for_types=for_types or child in guarded, late=late)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def read_uses(path: Path, imports: Iterable[Import], modules: Container[str]) -> Iterator[tuple[int, str, str]]:
    """Yield what a file uses of the modules that it imports whole: the line, the module, and the name in it.

    The name is empty where the module itself is used, as an argument for example.
    """
    origins = {one.bound: one.origin for one in imports if not one.name or one.full_name in modules}
    if not origins:
        return
    tree = parse(path)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in inner:
            first, *rest = _chain(node)
            if first in origins:
                yield node.lineno, *_split(origins[first], rest, modules)


def _chain(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c` where it begins with a name, and those after anything else behind an empty one."""
    if isinstance(node, ast.Attribute):
        return [*_chain(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _split(module: str, names: list[str], modules: Container[str]) -> tuple[str, str]:
    """Follow submodules, then return the module and the first name in it."""
    while names and f"{module}.{names[0]}" in modules:
        module, names = f"{module}.{names[0]}", names[1:]
    return module, names[0] if names else ""
