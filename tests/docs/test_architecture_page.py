"""The page of the architecture says what the code says: its generated parts, and every file that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import architecture_table
import hook_map
import pytest
from workspace import ROOT, packages

TEXT = architecture_table.PAGE.read_text(encoding="utf-8")
MODULES = {architecture_table.short(path): path for path in ROOT.glob("**/src/**/*.py") if ".venv" not in path.parts}
NAMED = sorted(set(re.findall(r"\bhermes_\w+/[\w/]+\.py\b", TEXT)))
HOOKS = hook_map.read_hooks()


@pytest.fixture(scope="module")
def fresh() -> str:
    return architecture_table.with_tables(TEXT)


def test_the_generated_parts_are_those_of_the_code(fresh: str):
    old, new = TEXT.splitlines(), fresh.splitlines()
    changed = [line for line in new if line not in old]
    assert old == new, "\n".join([f"run `{architecture_table.COMMAND}`; then the page has", *changed])


def test_a_page_that_is_out_of_date_is_told_and_written(tmp_path: Path, fresh: str, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.md"
    page.write_text(fresh.replace("| `hermes_tools` |", "| `hermes_axes` |"), encoding="utf-8")
    assert architecture_table.main([], page) == 1
    assert architecture_table.COMMAND in capsys.readouterr().out
    assert architecture_table.main(["--write"], page) == 0
    assert page.read_text(encoding="utf-8") == fresh
    assert architecture_table.main([], page) == 0


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="imports: begin"):
        architecture_table.with_tables("# No marks\n")


def test_every_module_that_the_page_names_exists():
    assert NAMED
    assert [name for name in NAMED if name not in MODULES] == []


def test_what_the_page_names_in_a_module_is_defined_there():
    pairs = re.findall(r"(hermes_\w+/[\w/]+\.py)`?,? \(?`?(\w+)`?\)", TEXT)
    assert len(pairs) > 20
    assert [(path, name) for path, name in pairs if name not in _definitions(MODULES[path])] == []


def _definitions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = {ast.unparse(name) for node in tree.body if isinstance(node, ast.Assign) for name in node.targets}
    return assigned | {
        node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_test_that_the_page_names_exists_once():
    named = set(re.findall(r"`((?:test|broken)_\w+\.py)`", TEXT))
    found = {name: [path for path in hook_map.test_files() if path.name == name] for name in named}
    assert {name: paths for name, paths in found.items() if len(paths) != 1} == {}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_every_file_of_a_hook_s_row_holds_its_name(hook: hook_map.Hook):
    """A hook that declares components is called by its row in the table of kinds."""
    calls = [hook_map.KINDS if path == hook_map.LOADER else path for path in hook.calls]
    files = [hook_map.HOOKSPECS, *calls, *hook.implementations[:1], *hook.tests[:1]]
    assert calls
    assert hook.tests
    assert [path for path in files if hook.name not in path.read_text(encoding="utf-8")] == []
    assert hook.contract is None or hook.contract[1] in _definitions(hook.contract[0])


def test_the_loader_calls_a_hook_for_each_row_of_the_table_of_kinds():
    text = hook_map.LOADER.read_text(encoding="utf-8")
    assert "for kind in KINDS.values()" in text
    assert "implementations[kind.hook]" in text


def test_the_page_has_the_rooms_in_their_order():
    rooms = (ROOT / "tests" / "workspace" / "test_workspace_rooms.py").read_text(encoding="utf-8")
    tree = ast.parse(rooms).body
    (order,) = [node.value for node in tree if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"]
    assert " → ".join(f"`{room}`" for room in ast.literal_eval(order)) in " ".join(TEXT.split())


def test_every_package_has_its_row():
    rows = re.findall(r"^\| `([a-z-]+)` \| `[\w/-]+/` \|", TEXT, re.MULTILINE)
    assert rows == [package.name for package in packages()]


def test_what_the_page_has_by_hand_stays_short():
    """A package or a hook more makes the generated parts longer; their lines are as long as they need."""
    by_hand = re.sub(r"<!-- (\w+): begin.*?<!-- \1: end -->", "", TEXT, flags=re.DOTALL).splitlines()
    assert len(by_hand) <= 140
    assert [line for line in by_hand if len(line) > 130 and not line.startswith("|")] == []
