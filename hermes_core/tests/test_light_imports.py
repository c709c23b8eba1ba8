"""What start-up must not import; a wall-clock figure is in benchmarks/startup.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from throwaway_plugins import verifier

import hermes_core

FORBIDDEN = {"pydantic", "asyncio", "aiohttp", "rich", "jsonschema", "yaml", "packaging", "typing_extensions", "attr"}
LISTING = "from hermes_core.cli import main; main({!r}); "
METADATA = ("importlib.metadata", "importlib_metadata")
REPORT = "import json, sys; print(); print(json.dumps(sorted(sys.modules)))"


def modules_after(code, path="", **settings):
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("HERMES_", "PYTEST_", "COV_"))}
    environ |= {"PYTHONPATH": path, **settings}
    command = [sys.executable, "-c", code + REPORT]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return set(json.loads(answer.stdout.splitlines()[-1]))


def test_the_package_itself_imports_nothing():
    added = modules_after("import hermes_core; ") - modules_after("")
    assert added == {"hermes_core", "hermes_core.lazy", "__future__"}


def test_a_public_name_is_imported_when_it_is_used():
    assert "hermes_core.hookspecs" in modules_after("import hermes_core; hermes_core.hookimpl; ")


@pytest.mark.parametrize("arguments", [["--version"], ["plugins", "list"], ["plugins", "list", "--json"]])
def test_a_listing_imports_no_third_party_module_at_all(arguments, site):
    site.install("acme-exact", verifier())
    modules = modules_after(LISTING.format(arguments), str(site.folder))
    assert not modules & FORBIDDEN
    assert not modules & {"pluggy", "importlib_metadata"}
    assert site.module("acme_exact") not in modules
    assert not any(name.startswith("hermes_core.discovery.loader") for name in modules)


def test_loading_light_plugins_imports_nothing_heavy(site):
    """A complaint about other plugin frameworks: the start grew with every plugin."""
    site.install("acme-exact", verifier())
    code = LISTING.format(["plugins", "list", "--load"])
    modules = modules_after(code, str(site.folder), HERMES_PLUGINS="hermes-tools,acme-exact")
    assert site.module("acme_exact") in modules
    assert "hermes_tools.toolsets" in modules
    assert not modules & FORBIDDEN


def test_the_contracts_import_nothing_heavy():
    names = (
        "engine",
        "errors",
        "events",
        "model",
        "parsing",
        "rollout",
        "sandbox",
        "task",
        "tool",
        "verifier",
        "command",
    )
    code = "".join(f"import hermes_core.contracts.{name}; " for name in names)
    assert not modules_after(code) & FORBIDDEN


def test_reading_tasks_imports_nothing_heavy():
    modules = modules_after("import hermes_core.discovery.tasks; ")
    assert not modules & FORBIDDEN
    assert "hermes_core.rollout" not in modules


def test_only_the_listing_and_what_stands_beside_it_touch_the_installed_metadata():
    from pathlib import Path

    root = Path(hermes_core.__file__).parent
    users = [p.relative_to(root).as_posix() for p in root.rglob("*.py") if _imports_metadata(p.read_text())]
    assert sorted(users) == ["discovery/installation/distributions.py", "discovery/installation/metadata.py"]


def _imports_metadata(source):
    import ast

    tree = ast.parse(source)
    guarded = {child for node in ast.walk(tree) if isinstance(node, ast.If) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if node in guarded:
            continue
        if isinstance(node, ast.Import) and any("metadata" in alias.name for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and f"{node.module}.{node.names[0].name}".startswith(METADATA):
            return True
    return False
