"""An old `AgentEnv` YAML selects a backend of today, and each of its pool's fields arrives there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from hermes_atropos import OWNERS, AgentEnvConfig
from hermes_core.contracts.errors import ConfigError
from hermes_tool_services.settings import executor_settings

OPTIONS = {
    "nomad": "hermes_backend_nomad.options:NomadOptions",
    "modal": "hermes_backend_modal.options:ModalOptions",
}
OLD: dict[str, dict[str, Any]] = {
    "nomad": {
        "nomad_address": "http://nomad:4646",
        "sandbox_job_id": "job",
        "sandbox_image": "image:1",
        "slots_per_container": 5,
        "min_containers": 2,
        "max_containers": 7,
        "privileged": True,
        "acquire_timeout_s": 12.5,
        "purge_job_on_start": True,
        "purge_job_on_shutdown": False,
        "tool_batch_window_ms": 10,
        "tool_max_batch_size": 20,
        "driver": "singularity",
        "singularity_image": "/images/a.sif",
    },
    "modal": {
        "modal_app_name": "app",
        "modal_image": "python:3.12",
        "modal_gpu": "T4",
        "modal_cpu": 2.0,
        "modal_memory": 4096,
        "modal_slots_per_sandbox": 4,
        "modal_min_sandboxes": 2,
        "modal_max_sandboxes": 9,
        "modal_idle_timeout": 60,
        "modal_max_lifetime": 1800,
        "modal_acquire_timeout": 12.5,
        "modal_execution_timeout": 40.0,
        "modal_secrets": "one,two",
        "modal_env_vars": "A=1;B=2",
        "modal_workspace_base": "/work",
        "tool_batch_window_ms": 10,
        "tool_max_batch_size": 20,
    },
}


def options_of(mode: str) -> Any:
    module, _, name = OPTIONS[mode].partition(":")
    package = module.partition(".")[0]
    pytest.importorskip(package, reason=f"{package} is not installed")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("mode", OPTIONS)
def test_every_field_of_an_old_pool_is_an_option_of_its_backend(mode: str) -> None:
    fields = OLD[mode]
    assert {field for field, owners in OWNERS.items() if mode in owners} <= set(fields)
    ref = AgentEnvConfig(tool_pool_mode=mode, **fields).backend_ref()
    assert ref.name == mode
    options = options_of(mode)(**ref.options)
    for field, value in fields.items():
        name = field.removeprefix(f"{mode}_") if mode == "modal" else field
        found = getattr(options, name)
        if field == "modal_secrets":
            assert list(found) == ["one", "two"]
        elif field == "modal_env_vars":
            assert dict(found) == {"A": "1", "B": "2"}
        else:
            assert str(getattr(found, "value", found)) == str(value), field


@pytest.mark.parametrize("mode", OPTIONS)
def test_an_old_config_that_sets_nothing_is_valid(mode: str) -> None:
    options_of(mode)(**AgentEnvConfig(tool_pool_mode=mode).backend_ref().options)


def test_hermes_agents_variables_of_the_executor_are_options_of_nomad() -> None:
    names = [
        "NOMAD_ADDRESS",
        "JOB_ID",
        "IMAGE",
        "SLOTS",
        "MIN_CONTAINERS",
        "MAX_CONTAINERS",
        "PRIVILEGED",
        "ACQUIRE_TIMEOUT_S",
    ]
    values = ["http://n:4646", "job", "image:1", "5", "2", "7", "1", "12.5"]
    environ = {f"TOOL_EXECUTOR_{name}": value for name, value in zip(names, values, strict=True)}
    options = options_of("nomad")(**executor_settings(environ).backend.options)
    assert (options.nomad_address, options.slots_per_container, options.privileged) == ("http://n:4646", 5, True)


def test_a_key_that_is_nearly_right_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'slots_per_container'"):
        AgentEnvConfig(tool_pool_mode="nomad", slots_per_containers=3)
