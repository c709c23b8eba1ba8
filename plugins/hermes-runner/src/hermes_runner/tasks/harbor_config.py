"""The fields of a Harbor `task.toml` that are read, and the demands that are not supported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_MEGABYTES: Final = {"K": 2**-10, "": 2**-20, "M": 1, "G": 2**10, "T": 2**20}


class _Table(BaseModel):
    # Harbor's format grows; keys that are not read are listed in the task's metadata.
    model_config = ConfigDict(extra="allow")


class Environment(_Table):
    """`[environment]`, in the spelling of old and new schema versions."""

    docker_image: str | None = None
    cpus: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    memory: str | None = None
    storage_mb: int | None = Field(default=None, gt=0)
    storage: str | None = None
    gpus: int = 0
    allow_internet: bool = True
    network_mode: str | None = None
    build_timeout_sec: float | None = None
    workdir: str | None = None
    os: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    mcp_servers: list[Any] = Field(default_factory=list)


class Phase(_Table):
    """`[agent]` or `[verifier]`."""

    timeout_sec: _Seconds | None = None
    user: str | int | None = None
    env: dict[str, str] = Field(default_factory=dict)
    environment_mode: str = "shared"


class Solution(_Table):
    """`[solution]`."""

    env: dict[str, str] = Field(default_factory=dict)


class TaskToml(_Table):
    """The whole file."""

    version: str | None = None
    schema_version: str | None = None
    task: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: Phase = Phase()
    verifier: Phase = Phase()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: list[Any] = Field(default_factory=list)
    artifacts: list[str | dict[str, Any]] = Field(default_factory=list)

    def artifact_paths(self) -> list[str]:
        """Return the paths that a rollout produces; an entry is PATH or `{"source": PATH}`."""
        paths = [entry if isinstance(entry, str) else entry.get("source") for entry in self.artifacts]
        if wrong := [path for path in paths if not isinstance(path, str) or not path.strip("/")]:
            raise ValueError(f"artifacts: expected paths of files or folders, got {wrong[0]!r}")
        return [str(path).rstrip("/") for path in paths]

    def unmet_demands(self) -> list[str]:
        """Return the task's demands that are not supported; without them it would be another task."""
        wanted = {
            "several [[steps]]": bool(self.steps),
            f"{self.environment.gpus} GPUs": self.environment.gpus > 0,
            f"the operating system {self.environment.os!r}": self.environment.os not in {None, "linux"},
            "MCP servers": bool(self.environment.mcp_servers),
            "a separate verifier environment": self.verifier.environment_mode != "shared",
            f"network_mode {self.environment.network_mode!r}": self.environment.network_mode not in _NETWORKS,
        }
        tables = {"environment": self.environment.env, "verifier": self.verifier.env, "solution": self.solution.env}
        for table, env in tables.items():
            for name in sorted(name for name, value in env.items() if "${" in value):
                wanted[f"the host's environment for {name} in [{table}]"] = True
        return [demand for demand, present in wanted.items() if present]

    def sandbox_fields(self) -> dict[str, Any]:
        """Return the resources as fields of a `SandboxSpec`."""
        environment = self.environment
        offline = not environment.allow_internet or _NETWORKS.get(environment.network_mode) == "none"
        fields: dict[str, Any] = {
            "cpu": environment.cpus,
            "memory_mb": environment.memory_mb or megabytes(environment.memory, "memory"),
            "disk_mb": environment.storage_mb or megabytes(environment.storage, "storage"),
            "network": "none" if offline else None,
            "env": environment.env or None,
            "cwd": environment.workdir,
            "user": None if self.agent.user is None else str(self.agent.user),
        }
        stated = {name: value for name, value in fields.items() if value is not None}
        # A wish: Harbor's template sets it for every task, and container engines can limit a disk only in memory.
        return {**stated, "as_image": True, "wishes": ("disk_mb",) if "disk_mb" in stated else ()}

    def unread_keys(self) -> list[str]:
        """Return the keys that are not read."""
        tables: Mapping[str, _Table] = {
            "": self,
            "agent.": self.agent,
            "verifier.": self.verifier,
            "environment.": self.environment,
            "solution.": self.solution,
        }
        return sorted(f"{prefix}{key}" for prefix, table in tables.items() for key in table.model_extra or ())


_NETWORKS: Final[dict[str | None, str]] = {None: "full", "public": "full", "none": "none", "no-network": "none"}


def megabytes(size: str | None, name: str) -> int | None:
    """Return a size like `4G` in megabytes."""
    if size is None:
        return None
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise ValueError(f"environment.{name}: expected a size like '4G', got {size!r}")
    return max(1, round(float(match[1]) * _MEGABYTES[match[2].upper()]))
