"""The README of each package: its examples print what they say, and it names all that the package registers."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from workspace import Package, packages

from hermes_core.discovery import KINDS, PluginSettings, load_plugins

MEMBERS = packages()
PLUGINS = [package for package in MEMBERS if "entry-points" in package.data["project"]]
PROMISE = re.compile(r"^```python\n(.*?)^```\n\nIt prints `(.*?)`\.", re.DOTALL | re.MULTILINE)


def _text(package: Package) -> str:
    return (package.folder / "README.md").read_text(encoding="utf-8")


EXAMPLES = [(package.name, *found) for package in MEMBERS for found in PROMISE.findall(_text(package))]


@pytest.mark.parametrize(("package", "example", "promised"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_an_example_prints_what_the_readme_says(package: str, example: str, promised: str):
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (promised, "")


def test_the_packages_that_one_uses_from_python_have_an_example():
    shown = {package for package, *_ in EXAMPLES}
    assert {"hermes-agent-core", "hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tool-services"} <= shown


@pytest.mark.parametrize("package", PLUGINS, ids=lambda package: package.name)
def test_a_readme_names_all_that_its_package_registers(package: Package):
    registry = load_plugins(PluginSettings(allow=(package.name,)))
    text = _text(package)
    names = [(kind, name) for kind in KINDS for name in registry.names(kind)]
    assert [(kind, name) for kind, name in names if not _is_named(kind, name, text)] == []


def _is_named(kind: str, name: str, text: str) -> bool:
    return f"hermes-core {name}" in text if kind == "cli_command" else f"`{name}`" in text


@pytest.mark.parametrize("package", MEMBERS, ids=lambda package: package.name)
def test_a_readme_says_how_the_package_is_installed(package: Package):
    assert f"pip install {package.name}" in _text(package)
