"""Which tier a test is in: the table decides, then its marks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from workspace import ROOT

TABLE = tomllib.loads((ROOT / "tests" / "tiers.toml").read_text(encoding="utf-8"))
SOME = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.component("docker")
@pytest.mark.parametrize("way", ["in", "out"])
def test_real(way): pass

class TestLevel:
    def test_carried(self): pass
    def test_same(self): pass
"""
SOME_TABLE = """
[deep]
tests = ["test_some.py::test_real"]
[components]
tests = ["test_some.py::*[in]"]
[backend_level]
classes = ["test_some.py::TestLevel"]
suites = []
tests = ["test_carried"]
"""


LISTS = [*TABLE["groups"].values(), *(TABLE[tier]["tests"] for tier in ("deep", "components", "fast"))]
PATTERNS = [*(pattern for patterns in LISTS for pattern in patterns), *TABLE["backend_level"]["classes"]]
FILES = [path for path in ROOT.glob("**/tests/**/test_*.py") if ".venv" not in path.parts]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_the_table_names_is_there(pattern: str):
    """Its file, and each class and part of a test's name, in the file or in the suites and tasks that it runs."""
    name, _, rest = pattern.partition("::")
    files = [path for path in FILES if re.fullmatch(name.replace("*", ".*"), path.name)]
    assert files, f"no file is called {name}"
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [word for word in re.findall(r"\w\w+", rest) if word not in text and word not in _suites_and_tasks()] == []


@pytest.mark.parametrize("test", TABLE["backend_level"]["tests"])
def test_every_test_of_the_backend_level_is_in_the_suites(test: str):
    assert f"def {test}(" in _suites_and_tasks()


@cache
def _suites_and_tasks() -> str:
    suites = (ROOT / "plugins" / "hermes-testing" / "src").glob("**/*.py")
    tables = (ROOT / "scripts" / "terminal_tasks").glob("*")
    return "".join(path.read_text(encoding="utf-8") for path in suites) + " ".join(path.stem for path in tables)


@pytest.mark.parametrize(
    ("tier", "tests"),
    [
        ("not components and not deep", {"test_plain"}),
        ("components", {"test_real[in]", "test_carried"}),
        ("deep", {"test_slow", "test_real[out]", "test_same"}),
    ],
)
def test_later_tables_overrule_earlier_ones_and_marks(tier: str, tests: set[str], tmp_path: Path):
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "tiers.toml").write_text(SOME_TABLE, encoding="utf-8")
    (tmp_path / "test_some.py").write_text(SOME, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-m",
        tier,
        "test_some.py",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert {line.rpartition("::")[2] for line in result.stdout.splitlines() if "::" in line} == tests, result.stdout
