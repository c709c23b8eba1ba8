"""The rooms of the core: imports go down the list only, and two libraries stay behind one door each.

In every package modules import each other in one direction only, for types too: what needs another module's classes is
above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from import_graph import circles, import_edges
from source_imports import read_imports
from workspace import ROOT, packages

CORE = ROOT / "hermes_core" / "src" / "hermes_core"
# From the ground up (design, "Rooms of the core"); a room may import itself and those before it.
ROOMS = (
    "cancellation",
    "lazy",
    "nearest",
    "specs",
    "contracts",
    "redaction",
    "hookspecs",
    "discovery",
    "tooling",
    "rollout",
    "cli",
)
# The package's front re-exports names of every room lazily; its main module starts the command.
DOORS = ("__init__", "__main__")
# What an engine and a store of leases are handed has its type above their contracts; nothing may be added.
UPWARDS_FOR_TYPES = {
    ("hermes_core.contracts.engine", "discovery"),
    ("hermes_core.contracts.engine", "rollout"),
    ("hermes_core.contracts.leases", "discovery"),
}


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything a module of the core imports at run time."""
    yield from ((one.line, one.full_name) for one in read_imports(path, CORE.parent) if not one.is_for_types)


def _room(path: Path) -> str:
    first = path.relative_to(CORE).parts[0]
    return first.removesuffix(".py")


def _core_modules() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def test_no_room_imports_a_room_above_it():
    upwards = []
    for path in _core_modules():
        own = _room(path)
        if own in DOORS:
            continue
        for line, name in _imports(path):
            parts = name.split(".")
            if parts[0] == "hermes_core" and len(parts) > 1 and parts[1] in ROOMS[ROOMS.index(own) + 1 :]:
                upwards.append(f"{path.relative_to(ROOT)}:{line}: {own} imports {name}")
    assert upwards == []


def test_no_room_knows_a_type_of_a_room_above_it():
    edges = import_edges([CORE.parent])
    upwards = {
        (name, other.split(".")[1])
        for name, used in edges.items()
        for other in used
        if name.count(".") and name.split(".")[1] not in DOORS and other.count(".")
        if other.split(".")[1] in ROOMS[ROOMS.index(name.split(".")[1]) + 1 :]
    }
    assert upwards == UPWARDS_FOR_TYPES


def test_every_module_of_the_core_lies_in_a_known_room():
    assert {_room(path) for path in _core_modules()} - set(DOORS) <= set(ROOMS)


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("importlib.metadata", {"discovery"}),
        ("importlib_metadata", {"discovery"}),
        ("pluggy", {"discovery", "hookspecs"}),
        ("atroposlib", set()),
    ],
)
def test_a_library_is_imported_only_by_the_room_that_owns_it(library: str, rooms: set[str]):
    elsewhere = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _core_modules()
        for line, name in _imports(path)
        if (name == library or name.startswith(f"{library}.")) and _room(path) not in rooms
    ]
    assert elsewhere == []


def test_the_core_imports_no_package_that_is_built_on_it():
    siblings = {path.name for pattern in ("*/src/*", "plugins/*/src/*") for path in ROOT.glob(pattern)}
    siblings.discard("hermes_core")
    used = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in _core_modules()
        for line, name in _imports(path)
        if name.split(".")[0] in siblings
    ]
    assert used == []


def test_an_upward_import_in_a_function_would_be_seen(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from hermes_core.cli import main\n"
        "def late():\n    from hermes_core.rollout import Runtime\n",
        encoding="utf-8",
    )
    found = [one for one in read_imports(module, tmp_path) if one.module.startswith("hermes_core")]
    assert [(one.full_name, one.is_for_types, one.is_late) for one in found] == [
        ("hermes_core.cli.main", True, False),
        ("hermes_core.rollout.Runtime", False, True),
    ]


def test_no_modules_import_each_other_in_a_circle_not_even_for_types():
    found = circles(import_edges(package.folder / "src" for package in packages()))
    assert found == [], "pass on what is needed of the other module, or move that into one below both"


@pytest.mark.parametrize(
    "text",
    [
        "from pack import one",
        "import pack.one",
        "from pack.one import ONE",
        "from pack import ONE",
        "from . import one",
        "from .one import ONE",
        "def late():\n    from pack.one import ONE",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.one import ONE",
    ],
)
def test_a_circle_would_be_seen(tmp_path: Path, text: str):
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("from pack.one import ONE\n", encoding="utf-8")
    (pack / "one.py").write_text("from pack.two import TWO\nONE = TWO\n", encoding="utf-8")
    (pack / "two.py").write_text("from pack.three import TWO\n", encoding="utf-8")
    (pack / "three.py").write_text(f"{text}\nTWO = 2\n", encoding="utf-8")
    (pack / "four.py").write_text("import pack.one\n", encoding="utf-8")
    assert circles(import_edges([tmp_path])) == [["pack.one", "pack.three", "pack.two"]]


def test_a_front_that_imports_on_demand_is_above_nothing(tmp_path: Path):
    pack = tmp_path / "pack"
    pack.mkdir()
    typed = "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from pack.one import ONE\n"
    front = f"{typed}__getattr__, __dir__ = lazy_exports(__name__, {{}})\n"
    (pack / "__init__.py").write_text(front, encoding="utf-8")
    (pack / "one.py").write_text("from pack import VERSION\nONE = VERSION\n", encoding="utf-8")
    (pack / "two.py").write_text("from pack import ONE\n", encoding="utf-8")
    edges = import_edges([tmp_path])
    assert (edges["pack.one"], edges["pack.two"]) == ({"pack"}, {"pack.one"})
    assert circles(edges) == []
