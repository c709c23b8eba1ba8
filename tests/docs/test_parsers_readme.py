"""What the README of hermes-parsers shows is true: its example, its tables, its names."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core.discovery import package_for
from hermes_parsers import get_parser, list_parsers

ROOT = Path(__file__).parents[2]
README = (ROOT / "hermes_parsers" / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_shown(capsys):
    code, shown = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", README, re.DOTALL | re.MULTILINE).groups()
    exec(code, {})  # the README's own text
    assert capsys.readouterr().out == shown


def test_the_tables_are_those_of_the_catalog_and_the_committed_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    assert importlib.import_module("benchmarks.parsers.readme_tables").with_tables(README) == README


@pytest.mark.parametrize("name", list_parsers())
def test_a_parser_that_is_not_installed_is_said_to_come_with_this_package(name):
    assert package_for("parser", name) == "hermes-parsers"


def test_a_stranger_s_parser_is_found_by_its_name():
    result = get_parser("acme_fence").parse('```tool\n{"name": "f", "arguments": {}}\n```\n')
    assert [call.name for call in result.calls] == ["f"]


def test_the_parser_shown_passes_the_suite_shown(tmp_path):
    for path, text in re.findall(r"^```python\n# (\S+?\.py)[^\n]*\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        target = tmp_path / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (tmp_path / "my_parsers" / "__init__.py").touch()
    # Time is measured where the suite runs by itself, not beside everything else.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not time_grows", "tests"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()[-2000:]
