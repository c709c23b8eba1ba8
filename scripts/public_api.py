"""Print or write what each package offers to others: `public_api.txt` beside its pyproject.toml.

A module with an `__all__` is public; so are the kernel's contracts, specs and hookspecs, with every name that has no
underscore in front. Every other module is its package's own.

    scripts/public_api.py            says which files are out of date
    scripts/public_api.py --write    writes them
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from source_imports import module_name, parse, read_imports
from workspace import Package, packages

SNAPSHOT = "public_api.txt"
KERNEL = "hermes_core"
OPEN_MODULES = {f"{KERNEL}.hookspecs", f"{KERNEL}.specs"}
OPEN_PACKAGE = f"{KERNEL}.contracts."
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file, read without importing it: what it defines, and where what it imports comes from."""

    name: str
    tree: ast.Module
    definitions: Mapping[str, ast.stmt] = field(default_factory=dict)
    imports: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()
    """What it imports to hand it on: `from … import Name as Name`."""
    exports: tuple[str, ...] | None = None
    """The names in `__all__`; None where there is none."""

    @property
    def public(self) -> tuple[str, ...]:
        """The names that others may import, sorted; none if the module is its package's own."""
        if self.exports is not None:
            return self.exports
        if self.name in OPEN_MODULES or self.name.startswith(OPEN_PACKAGE):
            return tuple(sorted(name for name in {*self.definitions, *self.aliases} if not name.startswith("_")))
        return ()


def read_modules(package: Package) -> dict[str, Module]:
    """Return the modules of a package by their full names."""
    return read_folder(package.folder / "src")


def read_folder(source: Path) -> dict[str, Module]:
    """Return the modules below a folder by their full names."""
    return {module_name(path, source): _read(path, source) for path in sorted(source.rglob("*.py"))}


def describe(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    """Yield the lines of one public module: each name with its signature, and the public members of classes."""
    yield f"{module.name}"
    for name in module.public:
        for line in _describe_name(name, module, modules):
            yield f"    {line}"


def snapshot(package: Package) -> str:
    """Return what the package's snapshot file should hold."""
    modules = read_modules(package)
    fronts = [module for module in modules.values() if module.public]
    if not fronts:
        return "No module of this package is for others to import.\n"
    return "\n\n".join("\n".join(describe(front, modules)) for front in fronts) + "\n"


def _read(path: Path, source: Path) -> Module:
    tree = parse(path)
    imports = {one.bound: (one.module, one.name) for one in read_imports(path, source) if one.name and not one.is_late}
    definitions: dict[str, ast.stmt] = {}
    aliases: set[str] = set()
    exports: tuple[str, ...] | None = None
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom):
            aliases |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, _Definition):
            definitions[node.name] = node
        elif (name := _assigned_name(node)) == "__all__" and isinstance(node, ast.Assign):
            exports = tuple(ast.literal_eval(node.value))
        elif name is not None and not _is_typing_help(node):
            definitions[name] = node
    return Module(module_name(path, source), tree, definitions, imports, frozenset(aliases), exports)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield top-level statements, those under `if TYPE_CHECKING` too: a lazy front imports its names there."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else (node,)


def _assigned_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _is_typing_help(node: ast.stmt) -> bool:
    """Tell whether it is a type variable or the switch `TYPE_CHECKING`, which nobody imports."""
    text = ast.unparse(node)
    return text.startswith("TYPE_CHECKING") or " = TypeVar(" in text


def _describe_name(name: str, module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    home, node = find_definition(name, module, modules)
    if node is None and name in home.imports:
        yield f"{name} = {'.'.join(home.imports[name])}"
        return
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in [*node.bases, *(word.value for word in node.keywords)])
        yield f"class {name}({bases})" if bases else f"class {name}"
        yield from (f"    {line}" for line in _describe_members(node, home, modules, set()))
    else:
        yield from _describe_definition(name, node) if node is not None else [f"{name} = ?"]


def _describe_members(
    node: ast.ClassDef, module: Module, modules: Mapping[str, Module], known: set[str]
) -> Iterator[str]:
    """Yield a class's public members, and those that it has of bases which no front exports."""
    for member in node.body:
        name = _name_of(member)
        if name is not None and name not in known:
            yield from _describe_member(name, member)
    known |= {name for member in node.body if (name := _name_of(member)) is not None}
    for base in node.bases:
        written = base.value if isinstance(base, ast.Subscript) else base
        home, found = find_definition(ast.unparse(written), module, modules)
        if isinstance(found, ast.ClassDef) and not _is_exported(found.name, home, modules):
            yield from _describe_members(found, home, modules, known)


def _name_of(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, _Definition) else _assigned_name(node)


def find_definition(name: str, module: Module, modules: Mapping[str, Module]) -> tuple[Module, ast.stmt | None]:
    """Return the module that defines a name, as far as it is one of these, and the definition."""
    while name not in module.definitions and name in module.imports and module.imports[name][0] in modules:
        origin, name = module.imports[name]
        module = modules[origin]
    return module, module.definitions.get(name)


def _is_exported(name: str, home: Module, modules: Mapping[str, Module]) -> bool:
    return any(name in front.public and find_definition(name, front, modules)[0] is home for front in modules.values())


def _describe_definition(name: str, node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield f"class {name}"
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield _signature(node)
    elif isinstance(node, ast.AnnAssign):
        yield f"{name}: {ast.unparse(node.annotation)}"
    else:
        yield name


def _describe_member(name: str, node: ast.stmt) -> Iterator[str]:
    if name.startswith("_") and name != "__init__":
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        yield from (f"@{mark}" for mark in marks if mark in {"property", "classmethod", "staticmethod"})
    yield from _describe_definition(name, node)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{word} {node.name}({ast.unparse(node.args)}){returned}"


def main(arguments: list[str]) -> int:
    """Write the snapshots, or say which are out of date and exit with 1."""
    old = 0
    for package in packages():
        path, text = package.folder / SNAPSHOT, snapshot(package)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        old += 1
        if "--write" in arguments:
            path.write_text(text, encoding="utf-8")
        print(f"{path}: {'written' if '--write' in arguments else 'out of date'}")
    return 1 if old and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
