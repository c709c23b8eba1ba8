"""A misspelt name in the config of a run: one message, with the names that exist."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError, UnknownComponentError
from hermes_core.contracts.task import Task
from hermes_runner.config import RunConfig
from hermes_runner.run.models import open_model
from hermes_runner.run.plan import names_without_effect, plan_groups


def config(**values):
    return RunConfig.parse({"tasks": "t.jsonl"} | values, source="run.yaml")


def refused_model(registry, **values):
    with pytest.raises(ConfigError) as caught:
        open_model(config(**values), api_key=None, tasks=(), registry=registry)
    return str(caught.value)


def test_an_unknown_model_names_the_embedded_ones_and_how_to_get_others(registry):
    said = refused_model(registry, model="orcle")
    assert "did you mean 'oracle'? Embedded models: " in said
    assert "pip install" in said
    assert "--model http://HOST:PORT/v1 --model-name orcle" in said
    assert "did you mean" not in refused_model(registry, model="gpt-4")


@pytest.mark.parametrize("model", ["localhost:8000", "http:///v1"])
def test_a_mistyped_address_is_no_embedded_model(registry, model):
    assert "mbedded" not in refused_model(registry, model=model)


def test_an_unknown_distribution_is_an_error_of_the_run_and_of_no_task(registry):
    tasks = [Task(id=name, messages=(), source=f"t.jsonl:{name}", enabled_toolsets=()) for name in "ab"]
    with pytest.raises(UnknownComponentError, match="did you mean 'default'"):
        plan_groups(tasks, config(distribution="defualt"), registry)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"backends": {"locl": {}}}, ["backend 'locl', so it has no effect; did you mean 'local'?"]),
        ({"backends": {"dcoker": {}}}, ["did you mean 'docker'?"]),
        ({"backends": {"hermes-backend-dcoker:docker": {}}}, ["'hermes-backend-dcoker:docker'"]),
        ({"backends": {"nope:local": {}}, "terminal_backend": "ssh"}, ["'nope:local'"]),
        ({"backends": {"docker2": {}}}, ["'docker2'"]),
        ({"backends": {"orbital": {}}}, ["backend 'orbital', so it has no effect"]),
        ({"tool_result_overrides": {"read_fil": 1, "terminl": 1}}, ["'read_file'?", "'terminal'?"]),
        ({"tool_result_overrides": {"hermes-tools:terminal": 1}}, ["did you mean 'terminal'?"]),
        ({"tool_result_overrides": {"hermes-tools:tmux": 1}}, ["did you mean 'tmux'?"]),
    ],
)
def test_every_name_without_effect_is_told_with_the_nearest_name_and_none_is_refused(registry, values, said):
    told = names_without_effect(config(**values), registry)
    [key] = [key for key in values if key != "terminal_backend"]
    assert len(told) == len(said)
    for line, expected in zip(told, said, strict=True):
        assert line.startswith(f"{key}: no plugin here declares ")
        assert expected in line


def test_nothing_is_told_about_names_that_are_installed_or_of_known_packages(registry):
    backends = {"local": {}, "nomad": {}, "hermes-backend-docker:docker": {}}
    assert not {"nomad", "docker"} & set(registry.names("backend"))
    assert names_without_effect(config(backends=backends, tool_result_overrides={"tmux": 1}), registry) == ()
    named = config(terminal_backend="hermes-sandbox:local", backends={"hermes-sandbox:local": {}})
    assert names_without_effect(named, registry) == ()


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("local", ["hermes-sandbox:local"]),
        ("hermes-sandbox:local", ["local"]),
        ("ssh", ["local", "hermes-sandbox:sandbox:local"]),
    ],
)
def test_a_backend_named_both_with_its_plugin_and_without_is_refused(backend, names):
    with pytest.raises(ConfigError, match="expected one name for a backend, got 'local' and 'hermes-sandbox:"):
        config(terminal_backend=backend, backends={name: {} for name in names})


def test_backends_of_one_name_are_told_apart_by_their_plugins():
    backends = {"acme:docker": {"image": "a"}, "hermes-backend-docker:docker": {"image": "b"}}
    assert config(terminal_backend="acme:docker", backends=backends).backend_ref().options == {"image": "a"}
