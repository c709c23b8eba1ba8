"""Declarations: frozen, picklable, plain, and strict about their names."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.discovery.kinds import KINDS
from hermes_core.specs import (
    BackendSpec,
    ComponentSpec,
    ParserSpec,
    Ref,
    ToolsetDistributionSpec,
    ToolsetSpec,
    ToolSpec,
    VerifierSpec,
)

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}


def example(cls):
    fields: dict[str, Any] = {"name": "thing", "summary": "A thing."}
    if issubclass(cls, ComponentSpec):
        fields |= {"target": "pkg.mod:Thing", "capabilities": frozenset({"b", "a"})}
    if cls is ToolSpec:
        fields |= {"toolset": "file", "description": "Do.", "parameters": PARAMETERS}
    if cls is ToolsetDistributionSpec:
        fields |= {"percentages": {"web": 90, "file": 10}}
    return cls(**fields)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_spec_is_frozen_picklable_and_plain_json(kind):
    spec = example(kind.spec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"
    assert pickle.loads(pickle.dumps(spec)) == spec
    plain = spec.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["name"] == "thing"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", "a\n", "é|"])
def test_a_name_that_could_not_be_written_in_a_config_is_refused(name):
    with pytest.raises(ValueError, match="expected a component name of letters, digits"):
        ParserSpec(name=name, summary="", target="a:b")


@pytest.mark.parametrize("alias", ["", "a b", "mine:web"])
def test_an_alias_that_could_not_be_written_in_a_config_is_refused(alias):
    with pytest.raises(ValueError, match="expected a component name of letters, digits"):
        ToolsetSpec(name="web", summary="", aliases=(alias,))


@pytest.mark.parametrize("percent", [-1, 101, 12.5, "50", True, None])
def test_a_percentage_is_a_whole_number_from_0_to_100(percent):
    with pytest.raises(ValueError, match=f"expected a whole number from 0 to 100 for 'web', got {percent!r}"):
        ToolsetDistributionSpec(name="d", summary="", percentages={"file": 0, "web": percent})


@pytest.mark.parametrize("lowest", [-1.0, 1.5, float("nan"), float("inf")])
def test_a_lowest_score_outside_the_bounds_is_refused(lowest):
    with pytest.raises(ValueError, match="lowest: expected a number in its bounds"):
        VerifierSpec(name="v", summary="s", target="a.b:C", lowest=lowest)


def test_a_distribution_of_no_toolset_is_refused():
    with pytest.raises(ValueError, match="toolset distribution 'd': expected at least one toolset, got none"):
        ToolsetDistributionSpec(name="d", summary="", percentages={})


@settings(max_examples=60)
@given(st.text(max_size=12))
def test_a_target_is_a_module_and_an_attribute_or_refused(target):
    module, colon, attribute = target.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    is_right = bool(colon) and all(part.isidentifier() for part in parts)
    try:
        ParserSpec(name="p", summary="", target=target)
    except ValueError:
        assert not is_right
    else:
        assert is_right


def test_a_tools_parameters_are_an_object_schema():
    with pytest.raises(ValueError, match="JSON schema of type 'object'"):
        ToolSpec(name="t", summary="", target="a:b", toolset="x", description="", parameters={"type": "string"})


def test_a_misspelt_side_effect_is_refused():
    """An external tool was offered without being named, as if it acted in the sandbox only."""
    parameters = {"type": "object", "properties": {}}
    with pytest.raises(ValueError, match="side_effects: expected none, sandbox or external, got 'externel'"):
        ToolSpec(
            name="t",
            summary="",
            target="a:b",
            toolset="x",
            description="",
            parameters=parameters,
            side_effects="externel",
        )


def test_a_tool_is_shown_to_the_model_in_openai_form():
    assert example(ToolSpec).openai_schema() == {
        "type": "function",
        "function": {"name": "thing", "description": "Do.", "parameters": PARAMETERS},
    }


def test_a_reference_is_plain_data():
    ref = Ref(kind="backend", name="docker", options={"image": "x"})
    assert Ref(**ref.to_json()) == ref


def test_sets_become_sorted_lists():
    spec = BackendSpec(name="b", summary="", target="a:b", networks=frozenset({"none", "allowlist"}))
    assert spec.to_json()["networks"] == ["allowlist", "none"]
