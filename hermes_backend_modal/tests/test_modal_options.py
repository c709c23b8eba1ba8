"""Options: the predecessor's names and texts, its profiles, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from hermes_backend_modal.options import ModalOptions
from hermes_core.atropos.agent_config import AgentEnvConfig


def _options(**given: object) -> ModalOptions:
    return ModalOptions.model_validate(given)


def test_texts_of_the_predecessor_are_taken_apart():
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
        ({"token_secret": "as-1"}, "belong together"),
        ({"token_id": "a", "token_secret": "b", "config_profile": "x"}, "token_id is another one"),
        ({"env_vars": "A"}, "K=V;K=V, found 'A'"),
        ({"user": "bob"}, "numeric UID"),
        ({"workspace_base": "data"}, "absolute path"),
        ({"workspace_base": "/"}, "absolute path"),
        ({"volumes": {"models": "models"}}, "a volume is /PATH: NAME"),
        ({"min_sandboxes": 3, "max_sandboxes": 2}, "min_sandboxes 3 is more than max_sandboxes 2"),
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


def test_profiles_of_the_environment_mean_nothing_where_none_is_asked_for(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_DEFAULT_IMAGE", "other:1")
    assert _options().image == "python:3.11"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gpo", "gpu: {gpu: T4}", "no Modal profile 'gpo'; did you mean 'gpu'"),
        ("gpu", "gpu: {gpus: T4}", "unknown option 'gpus'; did you mean 'gpu'"),
        ("gpu", "gpu: T4", "a profile is a mapping"),
        ("gpu", "- gpu", "is to map names"),
        ("gpu", "gpu: {", "are no YAML"),
        ("gpu", None, "cannot be read"),
    ],
)
def test_a_profile_that_cannot_be_had_is_explained(tmp_path, name, text, said):
    path = tmp_path / "profiles.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValidationError, match=said):
        _options(profile=name, profiles_file=path)


def test_a_variable_that_names_no_option_is_explained(monkeypatch):
    monkeypatch.setenv("ATROPOS_MODAL_PROFILE_GPU_MEMROY", "1")
    with pytest.raises(ValidationError, match="ATROPOS_MODAL_PROFILE_GPU_MEMROY ends with no option"):
        _options(profile="gpu")


def test_a_profile_has_no_token(tmp_path):
    path = tmp_path / "profiles.yaml"
    path.write_text("gpu: {token_secret: as-one}", encoding="utf-8")
    with pytest.raises(ValidationError, match="unknown option 'token_secret'"):
        _options(profile="gpu", profiles_file=path)
