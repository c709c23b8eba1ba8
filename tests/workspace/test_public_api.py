"""What a package offers to others: its fronts, what they export, and that nobody reaches past them."""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import public_api
import pytest
from source_imports import parse, read_imports, read_uses
from workspace import ROOT, Package, packages

MEMBERS = packages()
Modules = Mapping[str, public_api.Module]
MODULES = {name: module for package in MEMBERS for name, module in public_api.read_modules(package).items()}
FRONTS = [module for module in MODULES.values() if module.exports is not None]
BY_NAME = {"ids": lambda value: value.name}


def _sources(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "tests" not in path.relative_to(folder).parts]


def _names_of_others(path: Path, source: Path, modules: Modules) -> Iterator[tuple[int, str, str]]:
    """Yield line, module and name of what a file imports from other packages, or uses of their modules, for types too.

    The name is empty where a whole module is imported or handed on.
    """
    own = path.relative_to(source).parts[0]
    packages = {name.partition(".")[0] for name in modules} - {own}
    found = [one for one in read_imports(path, source) if one.module.partition(".")[0] in packages]
    yield from ((one.line, one.module, one.name) for one in found)
    yield from read_uses(path, found, modules)


def _is_public(module: str, name: str, modules: Modules) -> bool:
    if (whole := f"{module}.{name}".rstrip(".")) in modules:
        return bool(modules[whole].public)
    return module in modules and (name in modules[module].public or name.startswith("__"))


def _past_the_front(folder: Path, source: Path, modules: Modules = MODULES) -> list[str]:
    return [
        f"{path}:{line}: {module}{f'.{name}' if name else ''}"
        for path in _sources(folder)
        for line, module, name in _names_of_others(path, source, modules)
        if not _is_public(module, name, modules)
    ]


@pytest.mark.parametrize("package", MEMBERS, **BY_NAME)
def test_a_package_imports_from_others_only_what_their_fronts_export(package: Package):
    assert _past_the_front(package.folder / "src", package.folder / "src") == []


@pytest.mark.parametrize("folder", ["examples", "benchmarks"])
def test_programs_beside_the_packages_use_their_fronts_like_anybody(folder: str):
    assert _past_the_front(ROOT / folder, ROOT) == []


@pytest.mark.parametrize(
    ("text", "past"),
    [
        ("from acme import start", []),
        ("from acme import _hidden", ["acme._hidden"]),
        ("from acme.inside import Part", ["acme.inside.Part"]),
        ("from acme import inside", ["acme.inside"]),
        ("import acme.inside", ["acme.inside"]),
        ("import acme.inside as part", ["acme.inside"]),
        ("import acme\nacme.start()\nacme.__version__", []),
        ("import acme\nacme._hidden()", ["acme._hidden"]),
        ("import acme\nacme.inside.Part().run()", ["acme.inside.Part"]),
        ("import acme.front\nacme.front.Box.size", []),
        ("import acme.front\nacme.front.helper()", ["acme.front.helper"]),
        ("import acme.front\nprint(acme.inside)", ["acme.inside"]),
        ("import acme.front as front\nfront.Box()", []),
        ("import acme.front as front\ndef late(one: front.helper): ...", ["acme.front.helper"]),
        ("import acme as other\nother.front.helper()", ["acme.front.helper"]),
        ("from acme import front\nfront.helper()", ["acme.front.helper"]),
        ("from acme import front as one\none.Box(front.helper)", []),
        ("def late():\n    import acme.front as front\n    front.helper()", ["acme.front.helper"]),
        ("from user import own\nimport user.own\nuser.own.helper(own.helper)", []),
    ],
)
def test_a_use_past_the_front_is_found_however_the_module_is_imported(tmp_path: Path, text: str, past: list[str]):
    sources = {
        "acme/__init__.py": "__all__ = ['start']\ndef start(): ...\ndef _hidden(): ...\n",
        "acme/front.py": "__all__ = ['Box']\nclass Box: ...\ndef helper(): ...\n",
        "acme/inside.py": "class Part: ...\n",
        "user/__init__.py": "",
        "user/own.py": "def helper(): ...\n",
        "user/main.py": f"{text}\n",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    found = _past_the_front(tmp_path / "user", tmp_path, public_api.read_folder(tmp_path))
    assert [line.partition(": ")[2] for line in found] == past


@pytest.mark.parametrize("package", MEMBERS, **BY_NAME)
def test_the_public_api_is_what_its_snapshot_says(package: Package):
    path = package.folder / public_api.SNAPSHOT
    known = path.read_text(encoding="utf-8") if path.is_file() else ""
    changes = [*difflib.unified_diff(known.splitlines(), public_api.snapshot(package).splitlines(), lineterm="", n=0)]
    assert not changes, (
        f"the public API of {package.name} has changed. If that is meant, run `.venv/bin/python scripts/public_api.py "
        "--write`, and add a line that begins with `- *plugin-api*:` to CHANGELOG.md:\n" + "\n".join(changes)
    )


def test_a_snapshot_has_what_a_class_inherits_of_one_that_no_front_exports():
    package = next(package for package in MEMBERS if package.name == "hermes-atropos")
    environment = public_api.snapshot(package).partition("class HermesAgentBaseEnv(")[2].partition("class ")[0]
    assert "def compute_reward(self, item: Any" in environment


@pytest.mark.parametrize("front", FRONTS, **BY_NAME)
def test_a_front_exports_names_and_no_whole_module(front: public_api.Module):
    wholesale = [name for name in front.public if ".".join(front.imports.get(name, ("", ""))) in MODULES]
    assert wholesale == [], "export the names that others need, not the module that they are in"


@pytest.mark.parametrize("front", FRONTS, **BY_NAME)
def test_a_front_exports_no_name_of_a_module_beside_it(front: public_api.Module):
    """Importing that module would put it in the name's place."""
    assert [name for name in front.public if f"{front.name}.{name}" in MODULES] == []


@pytest.mark.parametrize("front", FRONTS, **BY_NAME)
def test_every_name_of_a_front_can_be_imported_and_no_other(front: public_api.Module):
    module = importlib.import_module(front.name)
    assert {name for name in front.public if getattr(module, name, None) is None} == set()
    assert set(front.public) - {"__version__"} <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{front.name}' has no attribute 'missing'"):
        _ = module.missing


@pytest.mark.parametrize("front", FRONTS, **BY_NAME)
def test_a_lazy_front_has_each_name_in_its_three_lists(front: public_api.Module):
    """For readers (`__all__`), for type checkers (the guarded imports), and for run time (`lazy_exports`)."""
    homes = dict(_lazy_homes(front))
    if not homes:
        return
    unguarded = [
        node for node in front.tree.body if isinstance(node, ast.Assign) and "lazy_exports(" in ast.unparse(node)
    ]
    assert unguarded == [], "write it under `if not TYPE_CHECKING`, or a type checker takes every name for one of these"
    assert {name: module for name, (module, _) in front.imports.items() if name in homes} == homes
    assert sorted(homes) == sorted(set(front.public) - {"__version__"} - front.definitions.keys())


def _lazy_homes(front: public_api.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(front.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_exports":
            for module, names in ast.literal_eval(node.args[1]).items():
                yield from ((name, front.name + module if module.startswith(".") else module) for name in names.split())


def test_no_two_public_classes_have_one_name():
    homes: dict[str, set[str]] = {}
    for front in MODULES.values():
        for name in front.public:
            home, definition = public_api.find_definition(name, front, MODULES)
            if isinstance(definition, ast.ClassDef):
                homes.setdefault(name, set()).add(home.name)
    # These are hermes-agent's, whose users know them, beside the contracts that came after.
    assert {name for name, found in homes.items() if len(found) > 1} == {
        "AgentResult",
        "Tool",
        "ToolContext",
        "ToolResult",
    }


def _private_members(package: Package) -> tuple[set[str], dict[str, str]]:
    """Return the private names that a package's source defines, and those that it uses of `self`, with the place."""
    defined: set[str] = set()
    used: dict[str, str] = {}
    for path in _sources(package.folder / "src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                defined |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            elif isinstance(node, ast.keyword) and node.arg:
                defined.add(node.arg)  # as in `self.__dict__.update(_name=…)`
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                elif ast.unparse(node.value) in {"self", "super()", "cls"}:
                    used[node.attr] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return defined, used


def test_no_package_uses_a_private_member_of_anothers_class():
    private = {package.name: _private_members(package) for package in MEMBERS}
    foreign = []
    for name, (defined, used) in private.items():
        others = set().union(*(found for other, (found, _) in private.items() if other != name))
        foreign += [f"{place}: {attribute}" for attribute, place in used.items() if attribute in others - defined]
    assert foreign == [], "make it public in the class that has it, with a docstring, or do without"
