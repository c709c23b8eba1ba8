"""The options of backend `slurm`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator, model_validator

from hermes_pool import PoolOptions
from hermes_sandbox.remote import MachineOptions

_Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^\x00-\x20]+$")]
_JobId = Annotated[str, StringConstraints(pattern=r"^[0-9]+(_[0-9]+)?(\+[0-9]+)?$")]
_RESERVED: Final = ("--job-name", "-J", "--no-shell", "--nodelist", "-w", "--no-kill", "-k")


class SlurmOptions(MachineOptions):
    """Options of backend `slurm`: an existing allocation (`job_id`), or the request for a new one."""

    job_id: _JobId | None = None
    """Job id of an existing allocation, which is used and not released; SLURM_JOB_ID if not given. `null` requests a
    new allocation even inside an existing one."""
    conf: Path | None = None
    """Slurm's configuration file; SLURM_CONF if not given, and Slurm's own default if that is not set either."""
    partition: _Word | None = None
    account: _Word | None = None
    qos: _Word | None = None
    nodes: int = Field(default=1, ge=1)
    """Number of nodes of a new allocation."""
    time: _Word | None = None
    """Time limit of a new allocation, as Slurm takes it ("30", "2:00:00", "1-12"); default: the partition's."""
    cpus_per_node: int | None = Field(default=None, ge=1)
    """Processors to request on each node; one if not given."""
    memory_mb_per_node: int | None = Field(default=None, ge=1)
    """Memory to request on each node; the partition's default if not given."""
    gres: _Word | None = None
    """Generic resources to request on each node, as in "gpu:2"."""
    constraint: _Word | None = None
    """Features that the nodes must have."""
    extra_args: tuple[str, ...] = ()
    """Further arguments for salloc, as in ["--exclusive", "--reservation=lab"]."""
    queue_timeout: float = Field(default=600.0, gt=0)
    """Seconds that a new allocation may wait in the queue."""

    pool: PoolOptions | None = None
    """Slot pool of isolation `none`: how many agents it starts at most, and how long a sandbox waits for a slot. If
    None, one agent on each node, with `slots_per_agent` slots."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        names = {"job_id": "SLURM_JOB_ID", "conf": "SLURM_CONF"}
        return {**{field: os.environ[name] for field, name in names.items() if os.environ.get(name)}, **values}

    @field_validator("conf")
    @classmethod
    def _whole_path(cls, value: Path | None) -> Path | None:
        # Slurm's commands run in /, and a process that reads a lease may have another working directory.
        return None if value is None else value.expanduser().absolute()

    @field_validator("extra_args")
    @classmethod
    def _leave_ours_alone(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for argument in value:
            if argument.split("=")[0] in _RESERVED or not argument.startswith("-"):
                raise ValueError(f"expected an option of salloc in one word other than {_RESERVED}, got {argument!r}")
        return value

    @property
    def wishes(self) -> list[str]:
        """The requested properties of an allocation, without its nodes, as arguments of salloc."""
        words = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "cpus-per-task": self.cpus_per_node,
            "mem": None if self.memory_mb_per_node is None else f"{self.memory_mb_per_node}M",
            "gres": self.gres,
            "constraint": self.constraint,
        }
        return [*(f"--{name}={word}" for name, word in words.items() if word is not None), *self.extra_args]
