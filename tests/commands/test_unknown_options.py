"""A misspelt option is named with the nearest one, a missing one with where to set it, for every kind of component."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from pydantic import BaseModel

from hermes_core.contracts.errors import ConfigError
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.discovery.kinds import kind_of
from hermes_core.specs import (
    BackendSpec,
    EngineSpec,
    ModelSpec,
    ParserSpec,
    SinkSpec,
    TaskSourceSpec,
    ToolSpec,
    VerifierSpec,
)

REGISTRY = load_plugins(PluginSettings(), environ={})
LOGIN = "host, port, user, key, passphrase, password, agent"


@pytest.mark.parametrize(
    ("kind", "name", "options", "said", "hint"),
    [
        ("backend", "docker", {"imag": "x"}, "has no option 'imag'", "did you mean 'image'? Known options: "),
        ("backend", "docker", {"equal": "docker_host"}, "has no option 'equal'", "known options: "),
        (
            "backend",
            "ssh",
            {"host": "far", "jump": [{"host": "near", "pasword": "1"}]},
            "unknown option 'jump.0.pasword'",
            f"did you mean 'password'? Known options of jump.0: {LOGIN}",
        ),
        (
            "backend",
            "pool",
            {"backends": [{"backend": "local", "equal": "x"}]},
            "unknown option 'backends.0.equal'",
            "known options of backends.0: backend, options",
        ),
        ("engine", "ray", {"worker": 1}, "has no option 'worker'", "did you mean 'workers'? Known options: "),
        ("parser", "hermes", {"promote_draft": 1}, "has no option 'promote_draft'", "did you mean 'promote_drafts'? "),
        ("verifier", "exit_code", {"comand": "x"}, "has no option 'comand'", "did you mean 'command'? Known options: "),
        (
            "verifier",
            "exit_code",
            {"checks": [{"command": "true", "wieght": 2}]},
            "unknown option 'checks.0.wieght'",
            "did you mean 'weight'? Known options of checks.0: ",
        ),
        (
            "verifier",
            "weighted",
            {"parts": [{"name": "exit_code", "option": {}}]},
            "unknown option 'parts.0.option'",
            "did you mean 'options'? Known options of parts.0: ",
        ),
    ],
)
def test_a_misspelt_option_is_named_with_the_nearest_one_of_its_own_level(kind, name, options, said, hint):
    with pytest.raises(ConfigError) as caught:
        REGISTRY.create(kind, name, options)
    assert said in caught.value.message
    assert str(caught.value.hint).startswith(hint)
    assert "(withheld)" not in str(caught.value)


class Greeting(BaseModel):
    word: str
    mark: str = "!"


TOOL = ToolSpec(name="greet", summary="s", description="d", target="t:T", parameters={"type": "object"}, toolset="t")
KNOWN = "; known options: word, mark"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (TOOL, "options: {tool: {greet: {word: …}}}, or --options JSON"),
        (ModelSpec(name="greet", summary="s", target="t:T"), "options: {model: {greet: {word: …}}}, or --options JSON"),
        (
            TaskSourceSpec(name="greet", summary="s", target="t:T"),
            "options: {task_source: {greet: {word: …}}}, or --options JSON",
        ),
        (BackendSpec(name="greet", summary="s", target="t:T"), "backend_options: {word: …}, or --backend-options JSON"),
        (EngineSpec(name="greet", summary="s", target="t:T"), "engine_options: {word: …}, or --engine-options JSON"),
        (
            ParserSpec(name="greet", summary="s", target="t:T"),
            "tool_call_parser_options: {word: …}, or --parser-options JSON",
        ),
        (SinkSpec(name="greet", summary="s", target="t:T"), "sinks: [{name: greet, options: {word: …}}]"),
        (
            VerifierSpec(name="greet", summary="s", target="t:T"),
            "verifier: {name: greet, options: {word: …}} of the task",
        ),
    ],
)
def test_a_missing_option_is_named_with_where_a_run_sets_it(spec, place):
    target = Mock(Options=Greeting)
    with pytest.raises(ConfigError, match="word is missing") as caught:
        REGISTRY.with_component(spec, target).create(kind_of(spec), "greet")
    assert caught.value.hint == f"in a run: {place}{KNOWN}"


def test_all_missing_options_are_in_the_hint():
    class Several(BaseModel):
        word: str
        tone: str

    spec = BackendSpec(name="greet", summary="s", target="t:T")
    with pytest.raises(ConfigError) as caught:
        REGISTRY.with_component(spec, Mock(Options=Several)).create("backend", "greet")
    place = "backend_options: {word: …, tone: …}, or --backend-options JSON"
    assert caught.value.hint == f"in a run: {place}; known options: word, tone"


def test_a_missing_option_inside_another_component_or_option_has_no_place_of_its_own():
    for name, options in (("pool", {"backends": [{"backend": "ssh"}]}), ("ssh", {"host": "far", "jump": [{}]})):
        with pytest.raises(ConfigError, match="host is missing") as caught:
            REGISTRY.create("backend", name, options)
        assert str(caught.value.hint).startswith("known options")
