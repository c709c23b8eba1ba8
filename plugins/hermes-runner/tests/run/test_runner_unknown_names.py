"""A misspelt name in the config of a run: one message, with the names that exist."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError, UnknownComponentError
from hermes_core.contracts.task import Task
from hermes_runner.config import RunConfig
from hermes_runner.run.models import open_model
from hermes_runner.run.plan import check_names, plan_groups


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
        ({"backends": {"locl": {}}}, "backends: expected the name of a backend, got 'locl'\n  → did you mean 'local'?"),
        ({"backends": {"hermes-sandbox:locl": {}}}, "did you mean 'local'?"),
        ({"tool_result_overrides": {"terminl": 1}}, "did you mean 'terminal'?"),
        (
            {"tool_result_overrides": {"hermes-tools:terminal": 1}},
            "got 'hermes-tools:terminal'\n  → did you mean 'term",
        ),
    ],
)
def test_a_misspelt_backend_or_tool_that_the_run_need_not_use_is_refused(registry, values, said):
    with pytest.raises(ConfigError) as caught:
        check_names(config(**values), registry)
    assert said in str(caught.value)


def test_names_of_packages_that_are_not_installed_are_accepted_and_others_are_told(registry):
    backends = {"local": {}, "hermes-sandbox:local": {}, "nomad": {}, "acme_local": {}}
    told = check_names(config(backends=backends, tool_result_overrides={"tmux": 1, "orbit": 1}), registry)
    assert "nomad" not in registry.names("backend")
    assert told == (
        "backends: no plugin here declares backend 'acme_local', so it has no effect",
        "tool_result_overrides: no plugin here declares tool 'orbit', so it has no effect",
    )
