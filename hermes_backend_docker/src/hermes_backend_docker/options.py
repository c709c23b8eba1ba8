"""Options of backend `docker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from hermes_sandbox.backends import AgentOptions, CommandUser, InsidePath, Seconds, parse_identity

DEFAULT_IMAGE: Final = "nikolaik/python-nodejs:python3.11-nodejs20"
"""hermes-agent's default image."""
DEFAULT_USER: Final = "1000:1000"
"""The default user of the commands."""

Megabytes = Annotated[int, Field(gt=0)]


class DockerOptions(AgentOptions):
    """The options for containers."""

    docker_host: str | None = None
    """unix:///PATH or tcp://HOST:PORT; default DOCKER_HOST, or unix:///var/run/docker.sock."""
    tls_dir: Path | None = None
    """Folder of ca.pem, cert.pem and key.pem; default DOCKER_CERT_PATH if DOCKER_TLS_VERIFY is set."""
    image: str = DEFAULT_IMAGE
    """Image for a task without one; `dockerfile:PATH` is built."""
    dockerfile: Path | None = None
    """Dockerfile to build for a task without an image, instead of `image`."""
    context: Path | None = None
    """Build context of `dockerfile`; default: its own folder."""
    pull: Literal["never", "missing", "always"] = "missing"
    pull_timeout: Seconds = 900.0
    build_timeout: Seconds = 1800.0
    user: CommandUser | None = None
    """Numeric uid[:gid] of the commands, or `root`, which isolates less and is recorded; wins over the task's."""
    workspace: InsidePath = "/workspace"
    carry_python: bool = True
    """Whether to bring this machine's own Python, in a volume, to an image without `python3`."""
    plain: Literal["auto", "never", "always"] = "auto"
    """Whether a shell replaces the agent, with fewer features: if no Python is available, never, or always."""
    env: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    volumes: list[str] = Field(default_factory=list)
    """SOURCE:TARGET or SOURCE:TARGET:ro, SOURCE a path of the engine's machine or a volume's name."""
    capabilities: list[str] = Field(default_factory=list)
    """Additional capabilities of the agent; commands of a user other than root never have any."""
    read_only_root: bool = False
    """Make everything except the workspace, `tmpfs` and volumes read-only; implied by a disk limit."""
    tmpfs: dict[str, Megabytes] = Field(default_factory=lambda: {"/tmp": 512, "/var/tmp": 256, "/run": 64})  # noqa: S108 - paths inside
    """Writable directories in memory if the rest is read-only, with their sizes in MB."""
    ulimits: dict[str, int] = Field(default_factory=lambda: {"core": 0, "nofile": 4096})
    """Limits of each process by the engine's names, not above the engine's own limits."""
    runtime: str | None = None
    """Runtime of the containers; the engine's default, and `runsc` at isolation `gvisor`."""
    network: str = "bridge"
    """The engine's network of sandboxes with network `full`."""
    slots_per_container: int = Field(default=16, ge=1, le=1024)
    """Rollouts that share a container at isolation `container+slot`."""
    concurrent_starts: int = Field(default=8, ge=1)
    """Containers that may be starting at once."""
    engine_timeout: Seconds = 60.0
    """Timeout of a request to the engine in seconds; pulls and builds have their own."""
    container_ttl: Seconds = 14400.0
    """Seconds after which a shared container accepts no new sandbox; it is removed after the last one."""

    @field_validator("volumes")
    @classmethod
    def _mounted_somewhere(cls, value: list[str]) -> list[str]:
        for volume in value:
            parts = volume.split(":")
            if len(parts) not in {2, 3} or not parts[0] or not parts[1].startswith("/"):
                raise ValueError(f"expected a volume as SOURCE:TARGET or SOURCE:TARGET:ro, got {volume!r}")
        return value

    @property
    def carries_python(self) -> bool:
        """Whether this machine's Python may be brought; not if the option `python` is set."""
        return self.carry_python and "python" not in self.model_fields_set

    @property
    def offers_shell(self) -> bool:
        """Whether a shell may serve an image without Python; not if the option `python` is set."""
        return self.plain == "always" or (self.plain == "auto" and "python" not in self.model_fields_set)

    @property
    def targets(self) -> tuple[str, ...]:
        """The mount points of the volumes."""
        return tuple(volume.split(":")[1].rstrip("/") for volume in self.volumes)

    @property
    def identity(self) -> tuple[int, int]:
        """The uid and gid of the commands."""
        return parse_identity(self.user or DEFAULT_USER)
