"""Options of backend `modal`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from hermes_backend_modal.profiles import find_profile, of_the_hermes_agent
from hermes_sandbox.backends import AgentOptions, CommandUser, InsidePath, Seconds, parse_identity


class ModalOptions(AgentOptions):
    """The options for sandboxes at Modal. Secrets are never displayed, logged or written to a lease."""

    token_id: str | None = None
    """Token id; default MODAL_TOKEN_ID, then the SDK's own file."""
    token_secret: SecretStr | None = None
    """Token secret; default: the secret of `token_id` in the environment or the SDK's file."""
    config_profile: str | None = None
    """Section of ~/.modal.toml; default: the active one."""
    server_url: str | None = None
    """Address of the service; default MODAL_SERVER_URL or Modal's own."""
    environment: str | None = None
    """Environment of the workspace; default MODAL_ENVIRONMENT or the workspace's own default."""
    # A profile's values are copied into the other options, because a reader of a lease may not have the profile.
    profile: str | None = Field(default=None, exclude=True)
    """Name of a set of these options, from `profiles_file` and ATROPOS_MODAL_PROFILE_*; explicit options win over it.
    """
    profiles_file: Path | None = Field(default=None, exclude=True)
    """YAML file of such sets; default ATROPOS_MODAL_PROFILES_FILE."""

    app_name: str = Field(default="atropos-sandbox", min_length=1)
    create_app: bool = True
    """Whether to create a missing app."""
    image: str = "python:3.11"
    """Image for a task without one: a registry's name, `dockerfile:PATH`, `debian_slim[:PYTHON]`, or `im-…` that
    exists.
    """
    add_python: str | None = None
    """Version of the Python that Modal adds to images without one, such as "3.12"."""
    registry_secret: str | None = None
    """Name of the Modal secret for a private registry."""
    gpu: str | None = None
    cpu: float = Field(default=1.0, gt=0)
    """Minimum cores of a sandbox; a task's `cpu` is an additional hard limit."""
    memory: int = Field(default=2048, ge=1)
    """Minimum megabytes of a sandbox; a task's `memory_mb` is an additional hard limit."""
    region: str | tuple[str, ...] | None = None
    cloud: str | None = None
    secrets: tuple[str, ...] = ()
    """Names of Modal secrets with variables for the commands; a text is split at commas."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the commands; a text `K=V;K=V` is split."""
    volumes: dict[str, str] = Field(default_factory=dict)
    """Modal volumes by mount path; `NAME:ro` is read-only."""
    tags: dict[str, str] = Field(default_factory=dict)
    workspace_base: InsidePath = "/data"
    """Parent folder of workspaces."""
    user: CommandUser = "1000:1000"
    """Numeric uid[:gid] of the commands, or `root`, which isolates less and is recorded."""

    mode: Literal["pool", "direct"] = "pool"
    """Default isolation: slots of shared sandboxes, or a sandbox per rollout."""
    slots_per_sandbox: int = Field(default=10, ge=1, le=1024)
    """Rollouts that share a sandbox at isolation `container+slot`."""
    min_sandboxes: int = Field(default=1, ge=0)
    """Shared sandboxes that are kept when idle."""
    max_sandboxes: int = Field(default=5, ge=1)
    """Maximum number of shared sandboxes."""
    acquire_timeout: Seconds = 60.0
    """Seconds to wait for a slot."""
    idle_timeout: int = Field(default=120, ge=1)
    """Seconds after which Modal ends an idle sandbox, and the pool an idle shared one."""
    max_lifetime: int = Field(default=3600, ge=1, le=86400)
    """Maximum lifetime of a sandbox in seconds. A shared one accepts no new rollout in its second half."""
    execution_timeout: float | None = Field(default=None, gt=0)
    """Timeout in seconds of a command without one, instead of the run's."""
    tool_batch_window_ms: int | None = Field(default=None, ge=0)
    """Accepted from old configs without effect: calls are sent at once."""
    tool_max_batch_size: int | None = Field(default=None, ge=1)

    concurrent_starts: int = Field(default=32, ge=1, le=128)
    """Maximum number of sandboxes that start at the same time."""
    service_timeout: Seconds = 60.0
    """Timeout of a request to the service in seconds."""
    create_timeout: Seconds = 300.0
    """Timeout for creating a sandbox in seconds."""
    build_timeout: Seconds = 1800.0
    """Timeout for building an image in seconds."""
    # Slower to reach than an engine on this machine.
    setup_timeout: Seconds = 60.0
    patience: Seconds = 30.0

    @model_validator(mode="before")
    @classmethod
    def _over_what_is_found(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        found = of_the_hermes_agent(os.environ)
        if values.get("profile") is not None:
            known = set(cls.model_fields) - {"profile", "profiles_file", "token_id", "token_secret"}
            found |= find_profile(values["profile"], values.get("profiles_file"), known)
        return {**found, **values}

    @field_validator("secrets", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("env_vars", mode="before")
    @classmethod
    def _variables(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(";") if part.strip()]
        wrong = [number for number, part in enumerate(parts, start=1) if "=" not in part]
        if wrong:
            # Without the part's text: it may be the rest of a secret that contains a `;`.
            raise ValueError(f"expected env_vars as K=V;K=V, got no = in part {wrong[0]}")
        return {name.strip(): text for name, _, text in (part.partition("=") for part in parts)}

    @field_validator("gpu", mode="before")
    @classmethod
    def _none_for_nothing(cls, value: Any) -> Any:
        return value or None

    @field_validator("workspace_base")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        return value.rstrip("/")

    @field_validator("volumes")
    @classmethod
    def _mounted_somewhere(cls, value: dict[str, str]) -> dict[str, str]:
        for path, name in value.items():
            if not path.startswith("/") or not name.removesuffix(":ro"):
                raise ValueError(f"expected a volume as /PATH: NAME or /PATH: NAME:ro, got {path!r}: {name!r}")
        return value

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.token_id is None and self.token_secret is not None:
            raise ValueError("expected token_id with token_secret, got none")
        if self.token_id is not None and self.config_profile is not None:
            raise ValueError("expected config_profile or token_id, got both")
        if self.min_sandboxes > self.max_sandboxes:
            raise ValueError(
                f"expected min_sandboxes of at most max_sandboxes {self.max_sandboxes}, got {self.min_sandboxes}"
            )
        return self

    @property
    def identity(self) -> tuple[int, int]:
        """The uid and gid of the commands."""
        return parse_identity(self.user)

    @property
    def workspace(self) -> str:
        """The directory of the rollout in an unshared sandbox."""
        return f"{self.workspace_base}/workspace"
