"""Components that are given as objects: `Registry.with_component`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import zipfile
from pathlib import Path

import pydantic
import pytest
from throwaway_plugins import verifier

from hermes_core.contracts.errors import (
    BrokenComponentError,
    ConfigError,
    UnavailableComponentError,
    UnknownComponentError,
)
from hermes_core.specs import ToolsetSpec, VerifierSpec


class Judge:
    def score(self, result, context):
        return 1.0


class Limited:
    class Options(pydantic.BaseModel):
        limit: int

    def __init__(self, options):
        self.limit = options.limit

    def score(self, result, context):
        return self.limit


class Maker:
    Options = Limited.Options

    def __call__(self, options):
        return Limited(options)


def spec(name="mine", **fields):
    return VerifierSpec(name=name, summary="Mine.", target=f"{__name__}:Judge", **fields)


def test_create_gives_the_object_and_the_first_registry_stays_as_it_was(load):
    registry, judge = load(), Judge()
    made = registry.with_component(spec(), judge)
    assert made.create("verifier", "mine") is made.create("verifier", "mine") is judge
    assert made.spec("verifier", "mine") == spec()
    assert made.names("verifier") == ("mine",)
    assert registry.names("verifier") == ()
    with pytest.raises(UnknownComponentError):
        registry.create("verifier", "mine")


def test_those_that_were_there_are_there_still(site, load):
    site.install("acme-exact", verifier("exact"))
    made = load("acme-exact").with_component(spec("one"), Judge()).with_component(spec("two"), Judge())
    assert made.names("verifier") == ("exact", "one", "two")
    assert made.create("verifier", "exact")


def test_an_object_takes_no_options(load):
    made = load().with_component(spec(), Judge())
    with pytest.raises(ConfigError, match="verifier:mine takes no options, got: limit"):
        made.create("verifier", "mine", {"limit": 1})


def test_a_class_and_a_factory_build_one_from_options(load):
    made = load().with_component(spec("class"), Limited)
    assert made.create("verifier", "class", {"limit": 2}).limit == 2

    made = made.with_component(spec("factory"), Maker())
    assert made.create("verifier", "factory", {"limit": 3}).limit == 3
    with pytest.raises(ConfigError, match="limit is missing"):
        made.create("verifier", "factory", {})


def test_a_name_that_a_plugin_declares_is_refused_with_both(site, load):
    site.install("acme-exact", verifier("exact"))
    registry = load("acme-exact")
    with pytest.raises(ConfigError, match=r"verifier 'exact' .*acme-exact:exact") as caught:
        registry.with_component(spec("exact"), Judge())
    assert f"local:{__name__}" in str(caught.value)
    assert "-p no:acme-exact:exact" in caught.value.hint
    with pytest.raises(ConfigError, match=f"local:{__name__}"):
        registry.with_component(spec(), Judge()).with_component(spec(), Judge())


def test_an_object_that_breaks_its_contract_is_refused(load):
    with pytest.raises(BrokenComponentError, match=r"it has no method score\(result, context\)"):
        load().with_component(spec(), object())


def test_what_a_factory_makes_is_checked_each_time_and_its_target_is_never_imported(load):
    def factory():
        return object()

    made = load().with_component(VerifierSpec(name="mine", summary="Mine.", target="no.such:Thing"), factory)
    for _ in range(2):
        with pytest.raises(BrokenComponentError, match=r"it has no method score\(result, context\)"):
            made.create("verifier", "mine")


def test_a_missing_requirement_holds_for_an_object_too(load):
    with pytest.raises(UnavailableComponentError, match="no-such-program"):
        load().with_component(spec(requires=("bin:no-such-program",)), Judge())


def test_a_declaration_without_an_implementation_is_refused(load):
    with pytest.raises(ConfigError, match="is a declaration only"):
        load().with_component(ToolsetSpec(name="all_mine", summary="Mine."), Judge())


def test_events_reach_the_plugins_of_the_first_registry(site, load):
    site.install("acme-watch", "@hookimpl\ndef hermes_tool_called(event):\n    raise RuntimeError(event)")
    registry = load("acme-watch")
    made = registry.with_component(spec(), Judge())
    made.fire("hermes_tool_called", "one")
    assert made.listens("hermes_tool_called")
    assert made.plugins == registry.plugins
    assert [problem.message for problem in registry.event_problems] == ["RuntimeError: one"]


def test_the_file_that_an_object_comes_from_is_recorded(load):
    made = load().with_component(spec(), Judge())
    entry = next(one for one in made.provenance([("verifier", "mine")]) if one["plugin"] == f"local:{__name__}")
    file = Path(sys.modules[__name__].__file__)
    assert entry["components"] == ["verifier:mine"]
    assert entry["file_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_of_a_partial_the_file_of_its_function_is_recorded(load):
    made = load().with_component(spec(), functools.partial(Limited))
    assert f"local:{__name__}" in [one["plugin"] for one in made.provenance([("verifier", "mine")])]


def test_a_class_from_a_zip_file_has_no_file_of_its_own(load, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as wheel:
        wheel.writestr("zipped_judges.py", "class Judge:\n    def score(self, result, context):\n        return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "wheel.zip"))
    judges = importlib.import_module("zipped_judges")
    made = load().with_component(spec(), judges.Judge())
    entry = next(one for one in made.provenance([("verifier", "mine")]) if one["local"])
    assert entry["file_sha256"] is None


def test_an_object_that_is_refused_is_to_be_repaired_where_it_was_given(load):
    with pytest.raises(BrokenComponentError) as caught:
        load().with_component(spec(), Path())
    assert caught.value.hint == f"repair the object of {Path.__module__} that was passed to with_component"
