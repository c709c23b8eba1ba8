"""The options of the engine `ray`."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hermes_backend_ray.options import split_address


class EngineOptions(BaseModel):
    """Options of the engine `ray`. A worker is an actor in its own process, which runs many rollouts at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = "auto"
    """`host:port` of the cluster; `auto` for RAY_ADDRESS or else the cluster that runs on this machine; `local` to
    start one for this run."""
    workers: int | None = Field(default=None, ge=1)
    """Total number of workers, spread over the nodes; excludes `workers_per_node`."""
    workers_per_node: int | None = Field(default=None, ge=1)
    """Workers per suitable node; 1 if neither option is given."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """Concurrent rollouts per worker; default: the worker's share of the run's `max_concurrent`."""
    num_cpus: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """CPUs that Ray reserves for a worker; this does not limit its sandboxes."""
    num_gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    memory_mb: int | None = Field(default=None, ge=1)
    """Memory that Ray reserves for a worker, in MiB."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Ray's custom resources that a worker needs; workers start only on nodes that have them."""
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    """Ray's runtime environment of the workers: `pip`, `env_vars`, `working_dir`, …"""
    start_timeout: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Seconds in which every worker must be ready, and for which a run waits for a new one when all are lost."""
    lost_after: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds of silence after which a worker counts as lost."""
    cancel_timeout: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Seconds in which a cancelled rollout must close its sandbox."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.workers is not None and self.workers_per_node is not None:
            raise ValueError("expected either workers or workers_per_node, got both")
        if self.address not in {"auto", "local"}:
            split_address(self.address)
        return self

    @property
    def per_node(self) -> int:
        """Workers per node, or 0 if their total is given."""
        return 0 if self.workers is not None else self.workers_per_node or 1

    @property
    def needs(self) -> dict[str, float]:
        """The resources that a node must have for one worker, by Ray's names."""
        own = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float((self.memory_mb or 0) << 20)}
        return {name: amount for name, amount in {**own, **self.resources}.items() if amount}

    def actor_options(self) -> dict[str, Any]:
        """Return Ray's options for a worker's actor; Ray neither restarts it nor repeats a call."""
        options: dict[str, Any] = {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "resources": dict(self.resources),
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        if self.memory_mb is not None:
            options["memory"] = self.memory_mb << 20
        if self.runtime_env:
            options["runtime_env"] = dict(self.runtime_env)
        return options
