"""Options of backend `singularity`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hermes_sandbox.backends import PROCESSES

DEFAULT_IMAGE: Final = "docker://nikolaik/python-nodejs:python3.11-nodejs20"
"""hermes-agent's default image."""


class SingularityOptions(BaseModel):
    """The options for instances."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    program: Path | None = None
    """The program apptainer or singularity; looked for on PATH if not given, under both names in this order."""
    image: str = DEFAULT_IMAGE
    """Image where a task names none: a sandbox directory, a SIF file, a definition file, or a source as docker://."""
    pull: Literal["never", "missing", "always"] = "missing"
    """When a registry's image is built anew: `always` once for each backend object, `never` takes what is cached."""
    scratch_dir: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Parent folder of the sandboxes' directories, with everything they write."""
    cache_dir: Path = Field(default_factory=lambda: _user_cache() / "hermes-core" / "singularity")
    """Where built images are kept, for all processes that use it."""
    cache_format: Literal["sandbox", "sif"] = "sandbox"
    """A directory is quicker to build and start, and needs no FUSE; a file is smaller, and kinder to a shared disk."""
    cache_max_mb: int | None = Field(default=None, gt=0)
    """Size above which unused images are removed after a build, least recently used first; None: never."""
    pull_timeout: float = Field(default=900.0, gt=0)
    build_timeout: float = Field(default=1800.0, gt=0)
    """Seconds for a definition file; everything else has `pull_timeout`."""
    build_options: list[str] = Field(default_factory=list)
    """Passed to `apptainer build`, as in ["--fakeroot"] or ["--no-https"]."""
    user: str = "1000:1000"
    """Numeric uid[:gid] of the commands, or `root`, if the caller is root; otherwise commands run as the caller."""
    workspace: str = "/workspace"
    python: str = "python3"
    """Python 3.8 or newer inside the image, for the agent."""
    bash: str = "/bin/bash"
    plain: Literal["auto", "never"] = "auto"
    """Whether a shell replaces the agent in an image without `python3`; fewer features, and the caller must be root."""
    env: dict[str, str] = Field(default_factory=dict)
    binds: list[str] = Field(default_factory=list)
    """SOURCE:TARGET or SOURCE:TARGET:ro, both absolute paths."""
    cgroup: Path | None = None
    """Control group (version 2) below which those of the sandboxes are made; found by trying if not given."""
    memory_limit: Literal["per_sandbox", "per_process"] = "per_sandbox"
    """`per_process` allows `memory_mb` to apply to each process separately if no control group can be used."""
    pids: int = Field(default=PROCESSES, gt=8)
    """Processes and threads of a sandbox whose task names no number: by a control group where one can be used, else by
    what the agent can have done."""
    concurrent_starts: int = Field(default=8, ge=1)
    start_timeout: float = Field(default=60.0, gt=0)
    """Seconds until an instance has started."""
    setup_timeout: float = Field(default=30.0, gt=0)
    """Seconds until a started agent must have answered."""
    patience: float = Field(default=20.0, gt=0)
    """Seconds of silence after which an agent counts as lost."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        # hermes-agent's environment variables; the config wins.
        return {**_hermes_agent_variables(os.environ), **values} if isinstance(values, dict) else values

    @field_validator("user")
    @classmethod
    def _numeric_user(cls, value: str) -> str:
        parts = value.split(":")
        if value != "root" and not (len(parts) <= 2 and all(part.isdecimal() for part in parts)):
            raise ValueError(f"user: expected a numeric UID or UID:GID, or root, got {value!r}")
        return "root" if value == "root" or int(parts[0]) == 0 else value

    @field_validator("workspace")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or value == "/":
            raise ValueError(f"expected an absolute path inside the image as workspace, got {value!r}")
        return value

    @field_validator("binds")
    @classmethod
    def _bound_somewhere(cls, value: list[str]) -> list[str]:
        for bind in value:
            source, _, rest = bind.partition(":")
            target, _, mode = rest.partition(":")
            paths = source.startswith("/") and target.startswith("/") and "," not in bind
            if not paths or mode not in {"", "ro", "rw"}:
                raise ValueError(f"expected a bind as /SOURCE:/TARGET or /SOURCE:/TARGET:ro, got {bind!r}")
        return value

    @field_validator("scratch_dir", "cache_dir", "program")
    @classmethod
    def _whole_path(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator("scratch_dir")
    @classmethod
    def _in_one_piece(cls, value: Path) -> Path:
        if set(str(value)) & set(',:"\n'):
            raise ValueError(
                f'scratch_dir has no comma, colon or ": the program takes paths apart there; found {value}'
            )
        return value

    @property
    def identity(self) -> tuple[int, int]:
        """User and group of the commands if the caller is root; (0, 0) for root itself."""
        if self.user == "root":
            return (0, 0)
        uid, _, gid = self.user.partition(":")
        return (int(uid), int(gid or uid))


def _hermes_agent_variables(environment: Mapping[str, str]) -> dict[str, str]:
    found = {"image": environment.get("TERMINAL_SINGULARITY_IMAGE", "")}
    base = environment.get("TERMINAL_SANDBOX_DIR")
    found["scratch_dir"] = environment.get("TERMINAL_SCRATCH_DIR") or (f"{base}/singularity" if base else "")
    return {field: value for field, value in found.items() if value}


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else Path.home() / ".cache"
