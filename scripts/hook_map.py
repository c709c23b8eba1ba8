"""Where each hook is called, what its targets must be, who implements it and which test shows it; read from the source.

Nothing is imported: all of it is found in the syntax trees of `hookspecs.py`, of the table of kinds, of the packages
and of their tests.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from source_imports import parse, read_imports
from workspace import ROOT, Package, packages

CORE = ROOT / "hermes_core" / "src"
HOOKSPECS = CORE / "hermes_core" / "hookspecs.py"
KINDS = CORE / "hermes_core" / "discovery" / "kinds.py"
LOADER = CORE / "hermes_core" / "discovery" / "loader.py"
# The kit breaks and imitates components for tests, and the example is not for use.
NOT_FOR_USE = {"hermes-testing", "acme-hermes"}
MEMBERS = packages()
IMPORT_NAMES = frozenset(package.import_name for package in MEMBERS)
TEST_FOLDERS = ("*/tests", "plugins/*/tests", "tests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook, with the files that have to do with it."""

    name: str
    told: str
    """What its docstring says, up to the first stop."""
    calls: tuple[Path, ...]
    contract: tuple[Path, str] | None
    """The module and the class that a target, an answer or an event is; None for a hook without one."""
    implementations: tuple[Path, ...]
    tests: tuple[Path, ...]
    """The files of tests that use it; first the one that uses the fewest hooks besides."""


def read_hooks() -> tuple[Hook, ...]:
    """Return all hooks, in the order of `hookspecs.py`."""
    return tuple(_read(node) for node in parse(HOOKSPECS).body if isinstance(node, ast.FunctionDef))


def _read(node: ast.FunctionDef) -> Hook:
    told = ast.get_docstring(node) or ""
    is_declaring = node.name in _kinds()
    return Hook(
        name=node.name,
        told=re.split(r"[;.](?:\s|$)", told, maxsplit=1)[0],
        calls=(LOADER,) if is_declaring else tuple(_callers(node.name)),
        contract=_contract(node),
        implementations=tuple(_implementations(node.name)),
        tests=tuple(_tests(node.name)),
    )


@cache
def _kinds() -> Mapping[str, str | None]:
    """Return the protocol of each hook that declares components, by the rows `Kind(name, spec, hook, protocol, …)`."""
    rows = [node for node in ast.walk(parse(KINDS)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Kind"]
    protocols = [ast.literal_eval(row.args[3]) if len(row.args) > 3 else None for row in rows]
    return {ast.literal_eval(row.args[2]): protocol for row, protocol in zip(rows, protocols, strict=True)}


def _contract(node: ast.FunctionDef) -> tuple[Path, str] | None:
    """Return what `kinds.py` says, or else the type of the event or of the answer."""
    protocol = _kinds().get(node.name)
    if protocol is None and node.name not in _kinds():
        protocol = next(_contract_types(node), None)
    if protocol is None:
        return None
    module, _, name = protocol.partition(":")
    return CORE / f"{module.replace('.', '/')}.py", name


def _contract_types(node: ast.FunctionDef) -> Iterator[str]:
    """Yield the types in a signature that are contracts, as "module:name"."""
    imports = {
        one.bound: one.full_name if one.module == "hermes_core.contracts" else one.module
        for one in read_imports(HOOKSPECS, CORE)
        if one.module.startswith("hermes_core.contracts")
    }
    for annotation in (*(argument.annotation for argument in node.args.args), node.returns):
        for word in re.findall(r"[\w.]+", ast.unparse(annotation) if annotation else ""):
            if word.partition(".")[0] in imports:
                yield f"{imports[word.partition('.')[0]]}:{word.rpartition('.')[2]}"


def _sources(members: Iterable[Package]) -> Iterator[Path]:
    for package in members:
        yield from sorted((package.folder / "src").rglob("*.py"))


def _callers(name: str) -> Iterator[Path]:
    """Yield the modules that send an event or ask for an answer."""
    for path in _sources(package for package in MEMBERS if package.name not in NOT_FOR_USE):
        if path != HOOKSPECS and name in _uses(path)[0]:
            yield path


def _implementations(name: str) -> Iterator[Path]:
    """Yield the modules that implement a hook, the shortest first."""
    found = _sources(package for package in MEMBERS if package.name not in NOT_FOR_USE)
    paths = [path for path in found if path != HOOKSPECS and name in _uses(path)[1]]
    yield from sorted(paths, key=lambda path: (path.stat().st_size, path))


def _tests(name: str) -> Iterator[Path]:
    """Yield tests before what only helps them, those of few hooks before those of many, the kernel's before others."""
    found = {path: sum(_uses(path), Counter()) for path in test_files()}
    yield from sorted(
        (path for path, uses in found.items() if name in uses),
        key=lambda path: (
            not path.name.startswith("test_"),
            len(found[path]),
            CORE.parent not in path.parents,
            -found[path][name],
            path,
        ),
    )


@cache
def test_files() -> tuple[Path, ...]:
    """Return every Python file in a folder of tests."""
    return tuple(path for pattern in TEST_FOLDERS for folder in ROOT.glob(pattern) for path in folder.rglob("*.py"))


@cache
def _hook_names() -> frozenset[str]:
    return frozenset(node.name for node in parse(HOOKSPECS).body if isinstance(node, ast.FunctionDef))


@cache
def _uses(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Count the hooks that a file names as a text or an attribute, and those that it implements, in a text too.

    A hook that has a package's name counts as a text only where it is implemented.
    """
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in _hook_names()):
        return Counter(), Counter()
    named: Counter[str] = Counter()
    implemented: Counter[str] = Counter()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef):
            implemented[node.name] += 1
        elif isinstance(node, ast.keyword) and node.arg:
            implemented[node.arg] += 1
        elif isinstance(node, ast.Attribute):
            named[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named[node.value] += node.value not in IMPORT_NAMES
            implemented.update(re.findall(r"\bdef (hermes_\w+)\(", node.value))
    return _only_hooks(named), _only_hooks(implemented)


def _only_hooks(found: Counter[str]) -> Counter[str]:
    return Counter({name: count for name, count in found.items() if count and name in _hook_names()})
