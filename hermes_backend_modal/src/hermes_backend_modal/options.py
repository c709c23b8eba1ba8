"""Options of backend `modal`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from hermes_backend_modal.profiles import find_profile, of_the_predecessor
from hermes_sandbox.backends import AgentOptions, CommandUser, InsidePath, Seconds, parse_identity


class ModalOptions(AgentOptions):
    """What a run's config says about its sandboxes at Modal. Secrets are never shown, logged or written to a lease."""

    token_id: str | None = None
    """MODAL_TOKEN_ID, then the SDK's own file if not given."""
    token_secret: SecretStr | None = None
    """Where `token_id` is given alone, its secret is looked for beside that id in the environment and the file."""
    config_profile: str | None = None
    """Section of ~/.modal.toml; the active one if not given."""
    server_url: str | None = None
    """Address of the service; MODAL_SERVER_URL or Modal's own if not given."""
    environment: str | None = None
    """Environment of the workspace; MODAL_ENVIRONMENT or the workspace's default if not given."""
    # What a profile says is in the other options then: who reads them from a lease may not have it.
    profile: str | None = Field(default=None, exclude=True)
    """Name of a set of these options, from `profiles_file` and ATROPOS_MODAL_PROFILE_*; given ones go before it."""
    profiles_file: Path | None = Field(default=None, exclude=True)
    """YAML of such sets; ATROPOS_MODAL_PROFILES_FILE if not given."""

    app_name: str = Field(default="atropos-sandbox", min_length=1)
    create_app: bool = True
    """Whether the app is made when it is not there."""
    image: str = "python:3.11"
    """Where a task names none: a registry's name, `dockerfile:PATH`, `debian_slim[:PYTHON]`, or `im-…` that exists."""
    add_python: str | None = None
    """Version of a Python that Modal adds to an image, as "3.12", for images that have none."""
    registry_secret: str | None = None
    """Name of the Modal secret that opens a private registry."""
    gpu: str | None = None
    cpu: float = Field(default=1.0, gt=0)
    """Cores that a sandbox is given at least; a task's `cpu` is a hard limit besides."""
    memory: int = Field(default=2048, ge=1)
    """Megabytes that a sandbox is given at least; a task's `memory_mb` is a hard limit besides."""
    region: str | tuple[str, ...] | None = None
    cloud: str | None = None
    secrets: tuple[str, ...] = ()
    """Names of Modal secrets, whose variables the commands get; a text with commas is taken apart."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """Variables of the commands; a text `K=V;K=V` is taken apart."""
    volumes: dict[str, str] = Field(default_factory=dict)
    """Path inside to the name of a Modal volume, `NAME:ro` for one that is only read."""
    tags: dict[str, str] = Field(default_factory=dict)
    workspace_base: InsidePath = "/data"
    """Where workspaces lie."""
    user: CommandUser = "1000:1000"
    """Numeric uid[:gid] of the commands, or `root`, which is weaker and recorded as such."""

    mode: Literal["pool", "direct"] = "pool"
    """What a run gets that asks for no isolation: slots of shared sandboxes, or a sandbox for each rollout."""
    slots_per_sandbox: int = Field(default=10, ge=1, le=1024)
    """Rollouts that share a sandbox at isolation `container+slot`."""
    min_sandboxes: int = Field(default=1, ge=0)
    """Shared sandboxes that are kept when idle."""
    max_sandboxes: int = Field(default=5, ge=1)
    """Shared sandboxes at most."""
    acquire_timeout: Seconds = 60.0
    """Seconds to wait for a slot."""
    idle_timeout: int = Field(default=120, ge=1)
    """Seconds after which Modal ends a sandbox in which nothing runs, and the pool a shared one that nobody uses."""
    max_lifetime: int = Field(default=3600, ge=1, le=86400)
    """Seconds after which Modal ends a sandbox, whatever runs in it. A shared one takes nobody new in its second
    half."""
    execution_timeout: float | None = Field(default=None, gt=0)
    """Seconds of a command that names none, in place of the run's."""
    tool_batch_window_ms: int | None = Field(default=None, ge=0)
    """Of old configs: calls are not held back to be sent together, so there is nothing to wait for."""
    tool_max_batch_size: int | None = Field(default=None, ge=1)

    concurrent_starts: int = Field(default=32, ge=1, le=128)
    """Sandboxes that may be starting at once."""
    service_timeout: Seconds = 60.0
    """Seconds in which the service must have answered a request."""
    create_timeout: Seconds = 300.0
    """Seconds in which a sandbox must have been made."""
    build_timeout: Seconds = 1800.0
    """Seconds in which an image must have been built."""
    # Farther away than an engine on this machine.
    setup_timeout: Seconds = 60.0
    patience: Seconds = 30.0

    @model_validator(mode="before")
    @classmethod
    def _over_what_is_found(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        found = of_the_predecessor(os.environ)
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
            # Without its text: it may be what follows a `;` in a secret.
            raise ValueError(f"env_vars is K=V;K=V; part {wrong[0]} of it has no =")
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
                raise ValueError(f"a volume is /PATH: NAME or /PATH: NAME:ro, found {path!r}: {name!r}")
        return value

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.token_id is None and self.token_secret is not None:
            raise ValueError("token_id and token_secret belong together; token_id is missing")
        if self.token_id is not None and self.config_profile is not None:
            raise ValueError("config_profile names a section that has a token; token_id is another one")
        if self.min_sandboxes > self.max_sandboxes:
            raise ValueError(f"min_sandboxes {self.min_sandboxes} is more than max_sandboxes {self.max_sandboxes}")
        return self

    @property
    def identity(self) -> tuple[int, int]:
        """The uid and gid of the commands."""
        return parse_identity(self.user)

    @property
    def workspace(self) -> str:
        """The directory of a sandbox's only rollout."""
        return f"{self.workspace_base}/workspace"
