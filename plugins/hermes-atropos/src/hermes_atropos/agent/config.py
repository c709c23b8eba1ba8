"""The configuration of an `AgentEnv`: hermes-agent's fields in addition to those of every environment.

`tool_pool_mode` names the terminal backend. The fields of a slot pool become options of their backend; setting one
together with another backend is an error, so that no field is silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from hermes_atropos.config import HermesAgentEnvConfig
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.discovery import package_for
from hermes_core.rollout import RolloutLimits
from hermes_core.specs import Ref

_BATCHES: Final = ("tool_batch_window_ms", "tool_max_batch_size")
_NOMAD: Final = (
    "nomad_address", "sandbox_job_id", "slots_per_container", "min_containers", "max_containers", "privileged",
    "acquire_timeout_s", "purge_job_on_start", "purge_job_on_shutdown", "driver", "singularity_image",
)  # fmt: skip
_MODAL: Final = (
    "modal_app_name", "modal_image", "modal_gpu", "modal_cpu", "modal_memory", "modal_slots_per_sandbox",
    "modal_min_sandboxes", "modal_max_sandboxes", "modal_idle_timeout", "modal_max_lifetime", "modal_acquire_timeout",
    "modal_execution_timeout", "modal_secrets", "modal_env_vars", "modal_workspace_base",
)  # fmt: skip
OWNERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_NOMAD, ("nomad",)),
    **dict.fromkeys(_MODAL, ("modal",)),
    **dict.fromkeys(_BATCHES, ("nomad", "modal")),
}
"""The backends that each field of a slot pool belongs to."""
_ISOLATED: Final[Mapping[str, str]] = {"local": "bwrap", "nomad": "container+slot", "modal": "container+slot"}
"""The isolation level that `require_sandbox` requires of a backend without `container`."""
_REPLACED: Final = {
    "max_agent_turns": "set agent_max_steps",
    "terminal_backend": "set tool_pool_mode",
    "prompt_field": "remove it: build_task returns the prompt of an item",
}
"""Fields of other environments that an `AgentEnv` does not have, with a hint for each."""


class AgentEnvConfig(HermesAgentEnvConfig):
    """The configuration of an `AgentEnv`; subclass it to add fields."""

    tool_pool_mode: str = Field(default="nomad", description="The terminal backend: nomad, modal, local, docker, …")

    allow_network: bool = Field(default=True, description="Whether commands may use the network.")
    require_sandbox: bool = Field(default=False, description="Do not start without isolation.")
    require_stateful_sandbox: bool = Field(
        default=False, description="Do not start without isolation if a tool keeps a session."
    )

    tool_batch_window_ms: int = Field(default=20, ge=0, description="Slot pools: how long a batch of calls is held.")
    tool_max_batch_size: int = Field(default=200, ge=1, description="Slot pools: calls of one batch.")

    nomad_address: str = Field(default="http://localhost:4646", description="nomad: address of its API.")
    sandbox_job_id: str = Field(default="atropos-sandbox-agent-env", description="nomad: the job's id.")
    sandbox_image: str = Field(default="atropos-sandbox:local", description="The image of a sandbox.")
    slots_per_container: int = Field(default=10, ge=1, description="nomad: rollouts that share a container.")
    min_containers: int = Field(default=1, ge=0, description="nomad: containers at the start.")
    max_containers: int = Field(default=10, ge=1, description="nomad: containers at most.")
    privileged: bool = Field(default=False, description="nomad: run containers privileged.")
    acquire_timeout_s: float = Field(default=30.0, gt=0, description="nomad: seconds to wait for a slot.")
    purge_job_on_start: bool = Field(default=False, description="nomad: purge an old job of this id first.")
    purge_job_on_shutdown: bool = Field(default=True, description="nomad: purge the job at the end.")
    driver: Literal["docker", "singularity"] = Field(default="docker", description="nomad: the task's driver.")
    singularity_image: str | None = Field(default=None, description="nomad: image file for driver singularity.")

    modal_app_name: str = Field(default="atropos-sandbox", description="modal: the app's name.")
    modal_image: str = Field(default="python:3.11", description="modal: image of a sandbox.")
    modal_gpu: str | None = Field(default=None, description="modal: kind of GPU.")
    modal_cpu: float = Field(default=1.0, gt=0, description="modal: cores of a sandbox.")
    modal_memory: int = Field(default=2048, ge=1, description="modal: megabytes of a sandbox.")
    modal_slots_per_sandbox: int = Field(default=10, ge=1, description="modal: rollouts that share a sandbox.")
    modal_min_sandboxes: int = Field(default=1, ge=0, description="modal: sandboxes at the start.")
    modal_max_sandboxes: int = Field(default=5, ge=1, description="modal: sandboxes at most.")
    modal_idle_timeout: int = Field(default=120, ge=1, description="modal: idle seconds until one ends.")
    modal_max_lifetime: int = Field(default=3600, ge=1, description="modal: seconds until one ends.")
    modal_acquire_timeout: float = Field(default=60.0, gt=0, description="modal: seconds to wait for a slot.")
    modal_execution_timeout: float = Field(default=30.0, gt=0, description="modal: seconds of one command.")
    modal_secrets: str = Field(default="", description="modal: names of secrets, with commas.")
    modal_env_vars: str = Field(default="", description="modal: environment of sandboxes, K=V;K=V.")
    modal_workspace_base: str = Field(default="/data", description="modal: folder of the workspaces.")

    agent_max_steps: int = Field(default=50, ge=1, description="Turns of one trajectory.")
    agent_temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False, description="Sampling temperature.")
    agent_max_tokens: int | None = Field(default=None, ge=1, description="Tokens of one turn; None: the server's.")
    agent_tool_delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Seconds between calls.")
    agent_tool_metadata: bool = Field(default=False, description="Show the model the metadata of tool results.")

    enabled_toolsets: list[str] | None = Field(default=["default"], description="Toolsets offered to the model.")
    disabled_toolsets: list[str] | None = Field(default=[], description="Toolsets or tools to remove.")
    tool_call_parser: str | None = Field(
        default=None, description="Not used: the agent reads <tool_call> in the text itself."
    )

    tool_server_url: str | None = Field(
        default=None,
        description="Tool server for external tools; inprocess: run them in this process. None: do not offer them.",
    )
    tool_server_token: str | None = Field(default=None, description="Bearer token of the tool server.")
    tool_executor_url: str | None = Field(
        default=None, description="Tool executor that runs the tools in its sandboxes; tool_pool_mode is then not used."
    )
    tool_executor_token: str | None = Field(default=None, description="Bearer token of the tool executor.")

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        for field, here in _REPLACED.items():
            if self._is_set(field):
                raise ConfigError(f"expected a field of AgentEnv, got {field}", hint=here)
        for field, owners in OWNERS.items():
            if self._is_set(field) and self.tool_pool_mode not in owners:
                raise _strange(field, owners, self.tool_pool_mode)
        if self.tool_call_parser is not None:
            raise ConfigError(
                "expected no tool_call_parser for AgentEnv, which parses <tool_call> itself", hint="remove it"
            )
        if self.tool_server_token is not None and self.tool_server_url in {None, "inprocess"}:
            raise ConfigError("expected tool_server_url with tool_server_token, got none", hint="set tool_server_url")
        self._check_executor()
        return self

    def _check_executor(self) -> None:
        """Refuse fields that the executor sets itself, so that none is silently ignored."""
        if self.tool_executor_url is None:
            if self.tool_executor_token is not None:
                raise ConfigError(
                    "expected tool_executor_url with tool_executor_token, got none", hint="set tool_executor_url"
                )
            return
        policy = ("allow_network", "require_sandbox", "require_stateful_sandbox", "sandbox_image", "distribution")
        asked = [field for field in (*OWNERS, *policy) if self._is_set(field)]
        asked += [field for field in ("backend_options", "sandbox") if getattr(self, field)]
        if asked:
            raise ConfigError(
                f"{asked[0]} cannot be set together with tool_executor_url", hint="set it at the executor"
            )

    def backend_ref(self) -> Ref:
        """Return the terminal backend that `tool_pool_mode` names, with the pool's fields as its options."""
        mode = self.tool_pool_mode
        own = {
            field.removeprefix(f"{mode}_" if mode == "modal" else ""): getattr(self, field)
            for field, owners in OWNERS.items()
            if mode in owners and self._is_set(field)
        }
        if mode == "nomad" and self._is_set("sandbox_image"):
            own["sandbox_image"] = self.sandbox_image
        return Ref(kind="backend", name=mode, options={**own, **self.backend_options})

    def sandbox_spec(self) -> SandboxSpec:
        """Return the sandbox spec of every rollout."""
        return SandboxSpec(**{**_fields(super().sandbox_spec()), **self._policy_fields()})

    def rollout_limits(self) -> RolloutLimits:
        """Return the limits of every rollout."""
        return super().rollout_limits().with_overrides({"max_agent_turns": self.agent_max_steps})

    def _policy_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if not self.allow_network:
            fields["network"] = "none"
        is_plain = "isolation" not in self.sandbox
        if is_plain and (self.require_sandbox or self.require_stateful_sandbox or not self.allow_network):
            # A process without isolation can reach everything on this machine.
            # Slots need separate users, which driver singularity does not have: each rollout gets a container there.
            has_slots = self.driver != "singularity"
            fields["isolation"] = _ISOLATED.get(self.tool_pool_mode, "container") if has_slots else "container"
        if self.tool_pool_mode != "nomad" and self._is_set("sandbox_image"):
            fields["image"] = self.sandbox_image
        return fields

    def _is_set(self, field: str) -> bool:
        default: object = type(self).model_fields[field].default
        return bool(getattr(self, field) != default)


def _fields(spec: SandboxSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in SandboxSpec.__dataclass_fields__}


def _strange(field: str, owners: tuple[str, ...], mode: str) -> ConfigError:
    packages = " or ".join(str(package_for("backend", owner)) for owner in owners)
    return ConfigError(
        f"expected tool_pool_mode {' or '.join(owners)} with {field}, got tool_pool_mode: {mode}",
        hint=f"remove it, or pip install {packages} and set tool_pool_mode: {owners[0]}",
    )
