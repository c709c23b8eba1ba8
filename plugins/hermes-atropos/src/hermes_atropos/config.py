"""The configuration of an environment: hermes-agent's fields and defaults, and a few new ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from hermes_atropos.compat import BaseEnvConfig, is_reasoning
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.discovery import PluginSettings
from hermes_core.nearest import did_you_mean
from hermes_core.rollout import RolloutLimits
from hermes_core.specs import Ref
from hermes_core.tooling import ResultBudget
from hermes_runner import Action, PluginConfig, Policy

FailedRollouts = Literal["replace", "shrink", "reject"]
Protocol = Literal["auto", "vllm", "sglang", "atropos"]

_SANDBOX: Final = TypeAdapter(SandboxSpec)


class HermesAgentEnvConfig(BaseEnvConfig):  # type: ignore[misc]  # atroposlib ships no types
    """The configuration of an environment; subclass it to add fields.

    An unknown key raises `ConfigError` with the nearest known key.
    """

    use_wandb: bool = Field(default=False, description="Report to wandb; it is not imported otherwise.")

    enabled_toolsets: list[str] | None = Field(
        default=None, description="Toolsets offered to the model; None: terminal and file. Excludes `distribution`."
    )
    disabled_toolsets: list[str] | None = Field(default=None, description="Toolsets or tools to remove.")
    distribution: str | None = Field(
        default=None, description="Name of a toolset distribution, drawn once per group. Excludes `enabled_toolsets`."
    )

    max_agent_turns: int = Field(default=30, ge=1, description="Model calls of one rollout.")
    system_prompt: str | None = Field(default=None, description="System message; tools go through `tools=`.")
    agent_temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="Sampling temperature.")

    terminal_backend: str = Field(default="local", description="Where commands run: local, docker, modal, …")
    terminal_timeout: float = Field(default=120, gt=0, allow_inf_nan=False, description="Seconds of one command.")
    terminal_lifetime: float = Field(
        default=3600, gt=0, allow_inf_nan=False, description="Idle seconds after which a sandbox may be removed."
    )

    dataset_name: str | None = Field(default=None, description="A JSONL file, or a Hugging Face dataset.")
    dataset_split: str = Field(default="train", description="Which split of the dataset.")
    prompt_field: str = Field(default="prompt", description="Which field of a record is the prompt.")

    tool_pool_size: int = Field(default=128, ge=1, description="Worker threads for synchronous tools and rewards.")
    tool_call_parser: str | None = Field(
        default="hermes",
        description="Parser of raw model text; with a chat server, only for calls that it did not parse. None: no "
        "parser.",
    )
    extra_body: dict[str, Any] | None = Field(
        default=None,
        description="Additional fields of every model request; in phase 2 those that the protocol supports.",
    )

    default_result_size_chars: int = Field(default=100_000, ge=1, description="Longer tool results are stored.")
    turn_budget_chars: int = Field(default=200_000, ge=1, description="All tool results of one turn together.")
    preview_size_chars: int = Field(default=1_500, ge=0, description="Size of the preview of a stored tool result.")
    tool_result_overrides: dict[str, int] | None = Field(default=None, description="Result sizes by tool.")

    seed: int = Field(default=0, description="Seed of each group's draw of tools and of its rollouts.")
    sampling: dict[str, Any] = Field(default_factory=dict, description="Further sampling parameters, both phases.")
    generate_protocol: Protocol = Field(
        default="auto", description="What a vllm or sglang server speaks; auto asks the server."
    )
    tool_call_parser_options: dict[str, Any] = Field(default_factory=dict, description="The parser's own options.")
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, description="Variables of the chat template.")
    logprobs_mode: Literal["raw", "processed"] | None = Field(
        default=None, description="Kind of logprobs that the server is configured to send; recorded with the data."
    )
    allow_branches: bool | None = Field(
        default=None,
        description="Several sequences per rollout. None: if history is edited, or a turn's stop token is not the "
        "template's; true: also with a chat template that rewrites history; false: never.",
    )
    allow_constrained: bool = Field(
        default=False, description="Treat samples that were drawn under a mask as exact; they are marked and counted."
    )
    require_exact: bool = Field(default=False, description="Drop rollouts whose exactness report is below 1.0.")

    failed_rollouts: FailedRollouts = Field(
        default="replace",
        description="A rollout without a reward is repeated (then dropped), dropped, or ends its group.",
    )
    max_attempts: int = Field(default=3, ge=1, description="Attempts to fill one place of a group.")
    min_group_size: int = Field(default=2, ge=1, description="A group with fewer scored rollouts is rejected.")
    lowest_reward: float = Field(
        default=0.0,
        allow_inf_nan=False,
        description="Reward of a rollout that caused its own failed verification, for example by ending its sandbox.",
    )
    policy: dict[str, Action] = Field(default_factory=dict, description="Cause → retry, drop, score or mask.")

    max_concurrent_groups: int = Field(default=64, ge=1, description="Groups in flight in `process`.")

    time_limit: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="Seconds of one rollout.")
    max_total_tokens: int | None = Field(default=None, ge=1, description="Sampled tokens of one rollout.")
    max_tool_calls: int | None = Field(default=None, ge=0, description="Tool calls of one rollout.")
    max_truncated_replies: int | None = Field(
        default=3, ge=1, description="Replies in a row that the token limit cuts off in the middle of a tool call."
    )
    verifier_timeout: float = Field(default=600, gt=0, allow_inf_nan=False, description="Seconds of compute_reward.")

    backend_options: dict[str, Any] = Field(default_factory=dict, description="The terminal backend's own options.")
    sandbox: dict[str, Any] = Field(default_factory=dict, description="Further fields of the sandbox's spec.")
    max_sandbox_starts: int = Field(default=8, ge=1, description="Sandboxes being created at one time.")
    plugins: PluginConfig = Field(default_factory=PluginConfig, description="Which plugins are loaded.")
    ledger_path: str | None = Field(
        default=None, description="JSONL file with the end of every rollout and its reason."
    )
    api_patience: float = Field(
        default=600, ge=0, allow_inf_nan=False, description="Seconds to wait for the trajectory API and the trainer."
    )
    serve_poll_interval: float = Field(
        default=0.5, gt=0, allow_inf_nan=False, description="Seconds between two polls of the trajectory API."
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for key in values:
                if key not in cls.model_fields:
                    raise ConfigError(
                        f"unknown key {key!r} in the config of {cls.__name__}", hint=nearest(key, cls.model_fields)
                    )
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.enabled_toolsets is not None and self.distribution is not None:
            raise ConfigError(
                f"enabled_toolsets ({', '.join(self.enabled_toolsets)}) and distribution ({self.distribution!r})"
                " exclude each other",
                hint="remove one of the two",
            )
        if self.tool_call_parser_options and self.tool_call_parser is None:
            raise ConfigError("expected tool_call_parser with tool_call_parser_options, got none", hint="remove it")
        self.rollout_policy()
        self.sandbox_spec()
        is_reasoning(self)
        return self

    def system_message(self, own: str | None) -> str | None:
        """Return the system message: the environment's own after `custom_thinking_prompt`."""
        if self.custom_thinking_prompt is None:
            return own
        return "\n\n".join(filter(None, [str(self.custom_thinking_prompt), own]))

    def sandbox_spec(self) -> SandboxSpec:
        """Return the sandbox spec of every rollout."""
        own = {"timeout": self.terminal_timeout, "lifetime": self.terminal_lifetime}
        known = set(SandboxSpec.__dataclass_fields__) - {"rollout_id"}
        for key in self.sandbox:
            if key in own:
                raise ConfigError(f"expected terminal_{key} in the config, got the key {key!r} in sandbox")
            if key not in known:
                raise ConfigError(f"sandbox: unknown key {key!r}", hint=nearest(key, known))
        return _SANDBOX.validate_python({**self.sandbox, **own})

    def rollout_limits(self) -> RolloutLimits:
        """Return the limits of every rollout."""
        return RolloutLimits(**{name: getattr(self, name) for name in RolloutLimits.__dataclass_fields__})

    def rollout_policy(self) -> Policy:
        """Return the action for each cause of a rollout's end."""
        from hermes_runner import DEFAULT_POLICY

        for cause in self.policy:
            if cause not in DEFAULT_POLICY:
                raise ConfigError(f"policy: unknown cause {cause!r}", hint=nearest(cause, DEFAULT_POLICY))
        return Policy(self.policy, max_attempts=self.max_attempts)

    def result_budget(self) -> ResultBudget:
        """Return the budget for tool results."""
        return ResultBudget(
            default_result_size_chars=self.default_result_size_chars,
            turn_budget_chars=self.turn_budget_chars,
            preview_size_chars=self.preview_size_chars,
            tool_result_overrides=self.tool_result_overrides,
        )

    def plugin_settings(self) -> PluginSettings:
        """Return the plugin settings."""
        return PluginSettings.from_environment(os.environ).with_config(self.plugins.model_dump())

    def backend_ref(self) -> Ref:
        """Return the reference to the terminal backend."""
        return Ref(kind="backend", name=self.terminal_backend, options=self.backend_options)


def nearest(key: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known key, or all of them."""
    names = sorted(known)
    return did_you_mean(key, names, otherwise=f"known keys: {', '.join(names)}", cutoff=0.5)
