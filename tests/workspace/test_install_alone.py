"""The install-alone check, on small workspaces: what the shared environment hides, it finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from workspace import ROOT

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "0.1.0"
dependencies = {dependencies}
[project.entry-points."hermes_core.plugins"]
{name} = "{entry_point}"
[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]
"""


def _package(root: Path, name: str, source: str, dependencies: str = "[]", entry_point: str | None = None) -> None:
    package = root / name / "src" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "plugin.py").write_text(source, encoding="utf-8")
    entry_point = entry_point or f"{name}.plugin"
    text = PROJECT.format(name=name, dependencies=dependencies, entry_point=entry_point)
    (root / name / "pyproject.toml").write_text(text, encoding="utf-8")


def _check(root: Path, name: str) -> subprocess.CompletedProcess[str]:
    (root / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["*"]\n', encoding="utf-8")
    wheels = root / "wheels"
    script = str(ROOT / "scripts" / "build_wheels.py")
    subprocess.run([sys.executable, script, "--root", str(root), "--out", str(wheels)], check=True, capture_output=True)
    script = str(ROOT / "scripts" / "check_wheels.py")
    command = [sys.executable, script, name, "--root", str(root), "--wheels", str(wheels), "--no-tests"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_undeclared_import_of_a_sibling_fails(tmp_path: Path):
    _package(tmp_path, "lower", "x = 1\n")
    _package(tmp_path, "upper", "from lower import plugin\n")
    result = _check(tmp_path, "upper")
    assert result.returncode == 1
    assert "No module named 'lower'" in result.stderr
    assert "FAILED: upper" in result.stdout


def test_a_declared_sibling_comes_from_the_built_wheels(tmp_path: Path):
    _package(tmp_path, "lower", "x = 1\n")
    _package(tmp_path, "upper", "from lower import plugin\n", dependencies='["lower>=0.1,<0.2"]')
    result = _check(tmp_path, "upper")
    assert result.returncode == 0, result.stderr
    assert "3 of 3 modules and entry points load" in result.stdout


def test_an_undeclared_import_of_a_third_party_fails(tmp_path: Path):
    _package(tmp_path, "lonely", "import pytest\n")
    result = _check(tmp_path, "lonely")
    assert result.returncode == 1
    assert "No module named 'pytest'" in result.stderr


def test_an_entry_point_that_names_nothing_fails(tmp_path: Path):
    _package(tmp_path, "lost", "x = 1\n", entry_point="lost.plugni")
    result = _check(tmp_path, "lost")
    assert result.returncode == 1
    assert "entry point hermes_core.plugins:lost: does not load" in result.stdout
