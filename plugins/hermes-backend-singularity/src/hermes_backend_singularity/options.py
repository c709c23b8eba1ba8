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
    """Options of backend `singularity`."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    program: Path | None = None
    """Path of the program; if not given, apptainer or else singularity on PATH."""
    image: str = DEFAULT_IMAGE
    """Image of tasks that name none: a sandbox directory, a SIF file, a definition file, or a source like docker://."""
    pull: Literal["never", "missing", "always"] = "missing"
    """When a registry's image is built: `missing` if it is not cached, `always` once per backend object, `never` takes
    only cached images."""
    scratch_dir: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Parent folder of the sandboxes' directories, which hold everything that sandboxes write."""
    cache_dir: Path = Field(default_factory=lambda: _user_cache() / "hermes-core" / "singularity")
    """Directory of built images, shared by all processes that use it."""
    cache_format: Literal["sandbox", "sif"] = "sandbox"
    """Form of built images. A directory (`sandbox`) is faster to build and start, and needs no FUSE; a file (`sif`) is
    smaller, and puts less load on a shared disk."""
    cache_max_mb: int | None = Field(default=None, gt=0)
    """Size above which unused images are removed after a build, least recently used first; None for no limit."""
    pull_timeout: float = Field(default=900.0, gt=0)
    build_timeout: float = Field(default=1800.0, gt=0)
    """Seconds for building a definition file; all other images have `pull_timeout`."""
    build_options: list[str] = Field(default_factory=list)
    """Additional options of `apptainer build`, as in ["--fakeroot"] or ["--no-https"]."""
    user: str = "1000:1000"
    """Numeric uid[:gid] of the commands, or `root`, if the caller is root. Otherwise commands run as the caller."""
    workspace: str = "/workspace"
    python: str = "python3"
    """Python 3.8 or newer inside the image, for the agent."""
    bash: str = "/bin/bash"
    plain: Literal["auto", "never"] = "auto"
    """Whether a shell replaces the agent in an image without `python3`; fewer features, and the caller must be root."""
    env: dict[str, str] = Field(default_factory=dict)
    binds: list[str] = Field(default_factory=list)
    """Bind mounts as SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths."""
    cgroup: Path | None = None
    """Control group (version 2) below which those of the sandboxes are created; found by trying if not given."""
    memory_limit: Literal["per_sandbox", "per_process"] = "per_sandbox"
    """`per_process` lets `memory_mb` apply to each process separately if no control group can be used."""
    pids: int = Field(default=PROCESSES, gt=8)
    """Most processes and threads of a sandbox whose task names no number; enforced by a control group if one can be
    used, and otherwise by RLIMIT_NPROC."""
    concurrent_starts: int = Field(default=8, ge=1)
    start_timeout: float = Field(default=60.0, gt=0)
    """Seconds in which an instance must start."""
    setup_timeout: float = Field(default=30.0, gt=0)
    """Seconds in which an agent must answer after its start."""
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
                f'expected scratch_dir without comma, colon, " and newline, where the program splits paths, got {value}'
            )
        return value

    @property
    def identity(self) -> tuple[int, int]:
        """Numeric user and group of the commands if the caller is root; (0, 0) for `root`."""
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
