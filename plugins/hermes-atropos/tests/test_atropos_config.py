"""The environments' configuration: hermes-agent's names and defaults, clear refusals."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from pydantic import Field

from hermes_atropos import HermesAgentEnvConfig
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import SandboxSpec

HERMES_AGENT = {
    "enabled_toolsets": None,
    "disabled_toolsets": None,
    "distribution": None,
    "max_agent_turns": 30,
    "system_prompt": None,
    "agent_temperature": 1.0,
    "terminal_backend": "local",
    "terminal_timeout": 120,
    "terminal_lifetime": 3600,
    "dataset_name": None,
    "dataset_split": "train",
    "prompt_field": "prompt",
    "tool_pool_size": 128,
    "tool_call_parser": "hermes",
    "extra_body": None,
    "default_result_size_chars": 100_000,
    "turn_budget_chars": 200_000,
    "preview_size_chars": 1_500,
    "tool_result_overrides": None,
}


@pytest.mark.parametrize(("field", "default"), HERMES_AGENT.items())
def test_a_field_of_hermes_agent_keeps_its_name_and_default(field, default):
    assert getattr(HermesAgentEnvConfig(), field) == default


def test_wandb_is_off_by_default():
    assert HermesAgentEnvConfig().use_wandb is False
    assert HermesAgentEnvConfig(use_wandb=True).use_wandb is True


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"unknown key 'max_agent_turn' in .*\n  → did you mean 'max_agent_turns'\?"):
        HermesAgentEnvConfig(max_agent_turn=3)


def test_an_authors_own_fields_are_known_and_near_too():
    class Mine(HermesAgentEnvConfig):
        puzzle_size: int = Field(default=3)

    assert Mine(puzzle_size=5).puzzle_size == 5
    with pytest.raises(ConfigError, match=r"did you mean 'puzzle_size'\?"):
        Mine(puzle_size=5)


def test_toolsets_and_a_distribution_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude each other"):
        HermesAgentEnvConfig(enabled_toolsets=["terminal"], distribution="development")


def test_the_sandbox_gets_the_terminals_times_and_further_fields():
    config = HermesAgentEnvConfig(terminal_timeout=7, terminal_lifetime=9, sandbox={"pids": 5})
    assert config.sandbox_spec() == SandboxSpec(timeout=7, lifetime=9, pids=5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sandbox": {"pid": 5}}, r"did you mean 'pids'\?"),
        ({"sandbox": {"timeout": 5}}, "terminal_timeout"),
        ({"policy": {"model_eror": "drop"}}, r"did you mean 'model_error'\?"),
    ],
)
def test_a_wrong_key_below_is_found_at_once(values, message):
    with pytest.raises(ConfigError, match=message):
        HermesAgentEnvConfig(**values)


def test_the_result_budget_has_the_four_fields():
    config = HermesAgentEnvConfig(
        default_result_size_chars=1, turn_budget_chars=2, preview_size_chars=3, tool_result_overrides={"terminal": 4}
    )
    budget = config.result_budget()
    assert (budget.default_result_size_chars, budget.turn_budget_chars, budget.preview_size_chars) == (1, 2, 3)
    assert budget.tool_result_overrides == {"terminal": 4}
