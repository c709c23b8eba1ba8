"""Options of backend `docker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from hermes_sandbox.backends import AgentOptions, CommandUser, InsidePath, Seconds, parse_identity

DEFAULT_IMAGE: Final = "nikolaik/python-nodejs:python3.11-nodejs20"
"""What hermes-agent has always used where nothing was named."""
DEFAULT_USER: Final = "1000:1000"
"""Whose commands are where neither an option nor a task says it."""

Megabytes = Annotated[int, Field(gt=0)]


class DockerOptions(AgentOptions):
    """What a run's config says about its containers."""

    docker_host: str | None = None
    """unix:///PATH or tcp://HOST:PORT; DOCKER_HOST if not given, else unix:///var/run/docker.sock."""
    tls_dir: Path | None = None
    """Folder of ca.pem, cert.pem and key.pem; DOCKER_CERT_PATH if not given and DOCKER_TLS_VERIFY is set."""
    image: str = DEFAULT_IMAGE
    """Image where a task names none; `dockerfile:PATH` is built."""
    dockerfile: Path | None = None
    """Built and used where a task names no image, in place of `image`."""
    context: Path | None = None
    """Folder that `dockerfile` is built in; the one it lies in if not given."""
    pull: Literal["never", "missing", "always"] = "missing"
    pull_timeout: Seconds = 900.0
    build_timeout: Seconds = 1800.0
    user: CommandUser | None = None
    """Numeric uid[:gid] of the commands, or `root`, which is weaker and recorded as such; over what a task says."""
    workspace: InsidePath = "/workspace"
    carry_python: bool = True
    """Whether this machine's own Python is brought, in a volume, to an image that has no `python3`."""
    plain: Literal["auto", "never", "always"] = "auto"
    """Whether a shell may serve what no agent can: where no Python can be had, never, or everywhere. It can less."""
    env: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    volumes: list[str] = Field(default_factory=list)
    """SOURCE:TARGET or SOURCE:TARGET:ro, SOURCE a path of the engine's machine or a volume's name."""
    capabilities: list[str] = Field(default_factory=list)
    """Added to the few that the agent has; commands of a user other than root have none anyway."""
    read_only_root: bool = False
    """Make everything but the workspace, `tmpfs` and volumes read-only; implied by a disk limit."""
    tmpfs: dict[str, Megabytes] = Field(default_factory=lambda: {"/tmp": 512, "/var/tmp": 256, "/run": 64})  # noqa: S108 - paths inside
    """Writable directories in memory where the rest is read-only, and their sizes in MB."""
    ulimits: dict[str, int] = Field(default_factory=lambda: {"core": 0, "nofile": 4096})
    """Limits of each process by the engine's names for them; not above what the engine itself may have."""
    runtime: str | None = None
    """Runtime of the containers; the engine's default, and `runsc` at isolation `gvisor`."""
    network: str = "bridge"
    """The engine's network of sandboxes with network `full`."""
    slots_per_container: int = Field(default=16, ge=1, le=1024)
    """Rollouts that share a container at isolation `container+slot`."""
    concurrent_starts: int = Field(default=8, ge=1)
    """Containers that may be starting at once."""
    engine_timeout: Seconds = 60.0
    """Seconds in which the engine must have answered a request; pulls and builds have their own."""
    container_ttl: Seconds = 14400.0
    """Seconds after which a shared container takes nobody new; it is removed when the last one has left."""

    @field_validator("volumes")
    @classmethod
    def _mounted_somewhere(cls, value: list[str]) -> list[str]:
        for volume in value:
            parts = volume.split(":")
            if len(parts) not in {2, 3} or not parts[0] or not parts[1].startswith("/"):
                raise ValueError(f"a volume is SOURCE:TARGET or SOURCE:TARGET:ro, found {volume!r}")
        return value

    @property
    def carries_python(self) -> bool:
        """Whether this machine's Python may be brought; not where somebody has said where the image's is."""
        return self.carry_python and "python" not in self.model_fields_set

    @property
    def offers_shell(self) -> bool:
        """Whether a shell may serve an image without Python; not where somebody has said where the Python is."""
        return self.plain == "always" or (self.plain == "auto" and "python" not in self.model_fields_set)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where the volumes are, inside."""
        return tuple(volume.split(":")[1].rstrip("/") for volume in self.volumes)

    @property
    def identity(self) -> tuple[int, int]:
        """The uid and gid of the commands."""
        return parse_identity(self.user or DEFAULT_USER)
