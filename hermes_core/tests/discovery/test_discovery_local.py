"""Plugins without packaging: a module or a file of the user's own."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from throwaway_plugins import HEADER, backend, verifier

from hermes_core.contracts.errors import BrokenComponentError, ConfigError
from hermes_core.discovery import PluginSettings
from hermes_core.discovery.installation.selection import find_plugins

COUNTING = """
made = []

@hookimpl
def hermes_verifiers():
    return [
        VerifierSpec(name="by_stem", summary="", target="mine:Verifier"),
        VerifierSpec(name="by_name", summary="", target=f"{__name__}:Verifier"),
    ]

class Verifier:
    def __init__(self):
        made.append(self)
    def score(self, result, context):
        return len(made)
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEADER + COUNTING)
    return str(path)


def test_a_file_is_a_plugin_marked_local(path, load):
    registry = load(extra=(path,))
    (record,) = [record for record in registry.plugins if record.found.is_local]
    assert record.id == "local:mine"
    assert record.to_json()["local"] is True
    assert record.state == "loaded"


@pytest.mark.parametrize("name", ["by_stem", "by_name", "local:by_stem", "local:mine:by_name"])
def test_a_target_in_the_file_is_named_by_its_stem_or_its_module_name(path, load, name):
    assert load(extra=(path,)).create("verifier", name).score(None, None) == 1


def test_an_object_of_a_file_that_cannot_be_built_is_to_be_repaired_there(path, load):
    Path(path).write_text(HEADER + COUNTING.replace("made.append(self)", "raise RuntimeError('no')"))
    with pytest.raises(BrokenComponentError, match="RuntimeError: no") as caught:
        load(extra=(path,)).create("verifier", "by_stem")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f"repair or upgrade {path}")


def test_a_target_that_the_file_lacks_offers_a_near_name(path, load):
    Path(path).write_text(HEADER + COUNTING.replace('target="mine:Verifier"', 'target="mine:Verifer"'))
    said = r"its target mine:Verifer does not exist \(no attribute 'Verifer'; did you mean 'Verifier'\?\)"
    with pytest.raises(BrokenComponentError, match=said):
        load(extra=(path,)).create("verifier", "by_stem")


def test_a_part_that_a_target_in_the_file_lacks_offers_a_near_name(path, load):
    nested = COUNTING.replace('target="mine:Verifier"', 'target="mine:Outer.Innr"')
    Path(path).write_text(f"{HEADER}{nested}\nclass Outer:\n    class Inner: ...\n")
    said = r"its target mine:Outer.Innr does not exist \(no attribute 'Innr'; did you mean 'Inner'\?\)"
    with pytest.raises(BrokenComponentError, match=said):
        load(extra=(path,)).create("verifier", "by_stem")


@pytest.mark.parametrize(
    "code", ["import os\nos.no_such_thing", "import json\nclass Backend(json.Backend): ...", "None.Backend"]
)
def test_an_attribute_that_the_code_of_a_target_lacks_is_no_missing_target(site, load, code):
    (site.folder / "needy_target.py").write_text(code)
    site.install("acme-needy", backend(target="needy_target:Backend"))
    with pytest.raises(BrokenComponentError, match="importing needy_target:Backend failed: AttributeError"):
        load("acme-needy").create("backend", "docker")


def test_two_registries_share_no_state_of_a_file(path, load):
    one, two = load(extra=(path,)), load(extra=(path,))
    assert one.create("verifier", "by_stem").score(None, None) == 1
    assert one.create("verifier", "by_stem").score(None, None) == 2
    assert two.create("verifier", "by_stem").score(None, None) == 1


def test_a_module_is_a_plugin(site, load):
    module = site.write("lab", HEADER + __import__("textwrap").dedent(verifier()))
    registry = load(extra=(module,))
    assert registry.component("verifier", "exact").plugin.id == f"local:{module}"


def test_the_module_of_an_installed_plugin_is_that_plugin_and_not_a_second_one(site):
    site.install("acme-docker")
    records = find_plugins(PluginSettings(allow=(), extra=(site.module("acme_docker"),)))
    assert [record.id for record in records if record.state == "found"] == ["acme-docker:docker"]


def test_a_local_plugin_that_fails_was_asked_for_and_so_is_an_error(tmp_path, load):
    path = tmp_path / "mine.py"
    path.write_text("raise RuntimeError('boom')")
    before = set(sys.modules)
    with pytest.raises(BrokenComponentError, match="local:mine cannot be used: RuntimeError: boom"):
        load(extra=(str(path),))
    assert not [name for name in set(sys.modules) - before if name.startswith("hermes_local_")]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("./nowhere.py", "there is no plugin file './nowhere.py'"),
        ("what-is-this", "is not an installed plugin, a module or a path"),
    ],
)
def test_what_is_neither_file_nor_module_nor_plugin_is_an_error(load, item, message):
    with pytest.raises(ConfigError, match=message):
        load(extra=(item,))


def test_a_file_that_is_not_python_is_an_error(tmp_path, load):
    path = tmp_path / "notes.txt"
    path.write_text("")
    with pytest.raises(BrokenComponentError, match=r"local:notes cannot be used: .*notes\.txt is not a Python file"):
        load(extra=(str(path),))


def test_two_files_of_one_name_are_an_error(path, tmp_path, load):
    other = tmp_path / "sub" / "mine.py"
    other.parent.mkdir()
    other.write_text("")
    with pytest.raises(ConfigError, match="two local plugins are called 'mine'"):
        load(extra=(path, str(other)))


def test_a_file_named_twice_counts_once(path, load, monkeypatch):
    monkeypatch.chdir(path.rpartition("/")[0])
    assert load(extra=(path, "./mine.py", path)).names("verifier") == ("by_name", "by_stem")


def test_the_hash_of_the_file_is_its_provenance(path, load):
    _, local = load(extra=(path,)).provenance([("verifier", "by_stem")])
    assert local["file_sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_the_hash_of_a_modules_file_is_its_provenance(site, load):
    module = site.write("lab", HEADER + __import__("textwrap").dedent(verifier()))
    _, local = load(extra=(module,)).provenance([("verifier", "exact")])
    digest = hashlib.sha256((site.folder / f"{module}.py").read_bytes()).hexdigest()
    assert local["file_sha256"] == digest
