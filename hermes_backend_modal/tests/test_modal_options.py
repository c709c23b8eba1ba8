"""Options: hermes-agent's names and texts, its profiles, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from hermes_atropos import AgentEnvConfig
from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases.book import public_options


def _options(**given: object) -> ModalOptions:
    return ModalOptions.model_validate(given)


def test_texts_of_hermes_agent_are_taken_apart():
    made = _options(secrets="wandb, hf", env_vars="A=1; B=x=y;", gpu="")
    assert made.secrets == ("wandb", "hf")
    assert made.env_vars == {"A": "1", "B": "x=y"}
    assert made.gpu is None


def test_every_modal_field_of_an_agent_env_is_an_option_with_the_same_default():
    made = _options()
    fields = {
        name.removeprefix("modal_"): field.default
        for name, field in AgentEnvConfig.model_fields.items()
        if name.startswith("modal_")
    }
    assert fields.keys() <= ModalOptions.model_fields.keys()
    same = {"secrets": (), "env_vars": {}, "execution_timeout": None}
    assert {name: getattr(made, name) for name in fields} == {**fields, **same}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token_secret": "as-1"}, "expected token_id with token_secret"),
        (
            {"token_id": "a", "token_secret": "b", "config_profile": "x"},
            "expected config_profile or token_id, got both",
        ),
        ({"env_vars": "A=x;y"}, "K=V;K=V, got no = in part 2"),
        ({"user": "bob"}, "numeric UID"),
        ({"workspace_base": "data"}, "absolute path"),
        ({"workspace_base": "/"}, "absolute path"),
        ({"volumes": {"models": "models"}}, "expected a volume as /PATH: NAME"),
        ({"min_sandboxes": 3, "max_sandboxes": 2}, "min_sandboxes of at most max_sandboxes 2, got 3"),
        ({"max_lifetime": 100000}, "less than or equal to 86400"),
        ({"imgae": "x"}, "Extra inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        _options(**given)


def test_a_secret_is_not_shown():
    assert "as-one" not in repr(_options(token_id="ak-one", token_secret="as-one"))


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    path = tmp_path / "profiles.yaml"
    path.write_text(
        "profiles:\n  gpu:\n    name: gpu\n    gpu: A10G\n    memory: 16384\n  gpu_big:\n    gpu: H100\n",
        encoding="utf-8",
    )
    return path


def test_a_profile_of_a_file_gives_options_and_given_ones_go_before_it(profiles):
    made = _options(profile="gpu", profiles_file=profiles, memory=4096)
    assert (made.gpu, made.memory) == ("A10G", 4096)


def test_the_environment_names_the_file_and_goes_before_it(profiles, monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILES_FILE", str(profiles))
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_GPU_MEMORY", "8192")
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_GPU_BIG_SECRETS", "wandb,hf")
    assert (_options(profile="gpu").gpu, _options(profile="gpu").memory) == ("A10G", 8192)
    assert (_options(profile="gpu_big").gpu, _options(profile="gpu_big").secrets) == ("H100", ("wandb", "hf"))


def test_a_profile_of_the_environment_alone_is_enough(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_PYTORCH_GPU_IMAGE", "pytorch/pytorch:2")
    assert _options(profile="pytorch-gpu").image == "pytorch/pytorch:2"


def test_profiles_of_the_environment_have_no_effect_unless_requested(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_DEFAULT_IMAGE", "other:1")
    assert _options().image == "python:3.11"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gpo", "gpu: {gpu: T4}", "no Modal profile 'gpo'; did you mean 'gpu'"),
        ("gpu", "gpu: {gpus: T4}", "unknown option 'gpus'; did you mean 'gpu'"),
        ("gpu", "gpu: T4", "expected a mapping of options"),
        ("gpu", "- gpu", "to map names"),
        ("gpu", "gpu: {", "are not valid YAML"),
        ("gpu", 'gpu: {env_vars: "A=s3cret}', "are not valid YAML: found unexpected end of stream in line 1"),
        ("gpu", "gpu: A=s3cret", "expected a mapping of options for profile 'gpu', got str"),
        ("gpu", None, "cannot be read"),
    ],
)
def test_a_profile_that_cannot_be_had_is_explained(tmp_path, name, text, said):
    path = tmp_path / "profiles.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValidationError, match=said) as caught:
        _options(profile=name, profiles_file=path)
    assert "s3cret" not in caught.value.errors()[0]["msg"]


def test_a_variable_that_names_no_option_is_explained(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_GPU_MEMROY", "1")
    with pytest.raises(ValidationError, match="expected ATROPOS_MODAL_PROFILE_GPU_MEMROY to end with an option"):
        _options(profile="gpu")


def test_a_profile_has_no_token(tmp_path):
    path = tmp_path / "profiles.yaml"
    path.write_text("gpu: {token_secret: as-one}", encoding="utf-8")
    with pytest.raises(ValidationError, match="unknown option 'token_secret'"):
        _options(profile="gpu", profiles_file=path)


def test_variables_of_hermes_agent_are_defaults(monkeypatch, profiles):
    monkeypatch.setenv("TERMINAL_MODAL_IMAGE", "own:1")
    monkeypatch.setenv("TERMINAL_CONTAINER_CPU", "2")
    monkeypatch.setenv("TERMINAL_CONTAINER_MEMORY", "5120")
    monkeypatch.setenv("TERMINAL_MODAL_POOL_MAX", "7")
    made = _options(profile="gpu", profiles_file=profiles, image="asked:1")
    assert (made.image, made.cpu, made.memory, made.max_sandboxes) == ("asked:1", 2.0, 16384, 7)
    assert (_options().image, _options().memory) == ("own:1", 5120)


@pytest.mark.parametrize(("word", "mode"), [("pool", "pool"), ("direct", "direct"), ("auto", "direct")])
def test_hermes_agent_s_word_for_the_way_to_modal_is_understood(monkeypatch, word, mode):
    monkeypatch.setenv("TERMINAL_MODAL_MODE", word)
    assert _options().mode == mode


def test_a_way_to_modal_that_is_not_offered_is_refused(monkeypatch):
    monkeypatch.setenv("TERMINAL_MODAL_MODE", "managed")
    with pytest.raises(ValidationError, match="to be one of pool, direct, auto, got 'managed'"):
        _options()


def test_an_agent_env_with_every_field_set_gives_options_that_are_accepted():
    fields = {
        "modal_app_name": "a", "modal_image": "b:1", "modal_gpu": "T4", "modal_cpu": 2.0, "modal_memory": 512,
        "modal_slots_per_sandbox": 3, "modal_min_sandboxes": 2, "modal_max_sandboxes": 4, "modal_idle_timeout": 9,
        "modal_max_lifetime": 99, "modal_acquire_timeout": 8.0, "modal_execution_timeout": 7.0, "modal_secrets": "x,y",
        "modal_env_vars": "K=V;L=W", "modal_workspace_base": "/work", "tool_batch_window_ms": 5,
        "tool_max_batch_size": 6,
    }  # fmt: skip
    config = AgentEnvConfig(tool_pool_mode="modal", **fields)
    made = _options(**config.backend_ref().options)
    assert (made.image, made.slots_per_sandbox, made.secrets, made.execution_timeout) == ("b:1", 3, ("x", "y"), 7.0)
    assert made.env_vars == {"K": "V", "L": "W"}
    assert {name.removeprefix("modal_") for name in fields} == made.model_fields_set


def test_reading_the_options_from_a_lease_needs_no_profile(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_GPU_APP_NAME", "the-gpus")
    kept, _ = public_options(_options(profile="gpu"))
    monkeypatch.delenv("ATROPOS_MODAL_PROFILE_GPU_APP_NAME")
    assert _options(**kept).app_name == "the-gpus"


@pytest.mark.parametrize(
    ("variable", "there"), [("MODAL_ENVIRONMENT", "staging"), ("MODAL_SERVER_URL", "http://elsewhere:1")]
)
async def test_a_sandbox_of_another_environment_is_not_taken_for_ended(monkeypatch, variable, there):
    monkeypatch.setenv(variable, there)
    handle = ModalBackend(_options()).handle(SandboxSpec(isolation="gvisor"), "ab" * 8)
    monkeypatch.delenv(variable)
    with pytest.raises(BackendError, match=f"expected Modal's .* '{there}' for sandbox .*, got") as caught:
        await ModalBackend(_options()).reclaim(handle)
    assert f"{variable}={there}" in caught.value.hint


async def test_a_sandbox_that_cannot_be_ended_does_not_prevent_ending_the_others(monkeypatch):
    backend = ModalBackend(_options())
    ended = []

    async def names_of_sandboxes(_):
        for name in ("stuck", "other"):
            yield name

    async def tags_of(sandbox):
        return {"hermes_sandbox": sandbox}

    async def end(sandbox):
        ended.append(sandbox)
        if sandbox == "stuck":
            raise BackendError("no")

    for name, work in (("find_tagged", names_of_sandboxes), ("tags_of", tags_of), ("end", end)):
        monkeypatch.setattr(backend.service, name, work)
    monkeypatch.setattr("hermes_backend_modal.backend.is_abandoned", lambda _: True)
    with pytest.raises(BackendError, match="no"):
        await backend.sweep()
    assert ended == ["stuck", "other"]
