"""hermes-agent's configuration of a pool, and its translation to options of this package."""

from __future__ import annotations

import logging
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from hermes_core.contracts.errors import ConfigError
from hermes_pool.options import PoolOptions

_LOG: Final = logging.getLogger(__name__)
_WITHOUT_EFFECT: Final = {
    "auto_build_local_image": "a pool builds no image; the image must exist",
    "scale_cooldown": "the results of the last starts decide when hosts are started",
}


class SlotPoolConfig(BaseModel):
    """hermes-agent's fields with its defaults. Unknown fields are refused; those without effect are logged."""

    model_config = ConfigDict(extra="forbid")

    nomad_address: str = "http://localhost:4646"
    job_id: str = "atropos-sandbox"
    datacenter: str = "dc1"
    image: str = "atropos-sandbox:local"
    slots_per_container: int = 10
    privileged: bool = False
    cpu: int = 500
    """MHz of a container."""
    memory: int = 512
    """Megabytes of a container."""
    driver: Literal["docker", "singularity"] = "docker"
    singularity_image: str | None = None
    min_containers: int = 1
    max_containers: int = 10
    acquire_timeout: float = 30.0
    health_check_interval: float = 30.0
    scale_cooldown: float = 60.0
    """Without effect: the results of the last starts decide when hosts are started."""
    purge_job_on_start: bool = False
    auto_build_local_image: bool = True
    """Without effect: the image must exist; if it does not, the error says how to build it."""
    dockerfile_path: str | None = None
    docker_build_context: str | None = None

    @model_validator(mode="after")
    def _note_what_has_no_effect(self) -> Self:
        for name in sorted(self.model_fields_set & _WITHOUT_EFFECT.keys()):
            _LOG.warning("%s has no effect: %s", name, _WITHOUT_EFFECT[name])
        return self

    def pool_options(self) -> PoolOptions:
        """Return the options of the slot pool."""
        return PoolOptions(
            min_hosts=self.min_containers,
            max_hosts=self.max_containers,
            slots_per_host=self.slots_per_container,
            acquire_timeout=self.acquire_timeout,
            health_interval=self.health_check_interval,
        )

    def backend_options(self) -> dict[str, Any]:
        """Return the options of backend `nomad` that mean the same.

        Raises:
            ConfigError: The config asks for an image to be built, which a pool does not do.
        """
        if self.dockerfile_path is not None or self.docker_build_context is not None:
            raise ConfigError(
                f"expected no dockerfile_path, because a pool builds no image; got {self.dockerfile_path!r}",
                hint=f"docker build -t {self.image} -f {self.dockerfile_path} {self.docker_build_context or '.'}",
            )
        return {
            "nomad_address": self.nomad_address,
            "sandbox_job_id": self.job_id,
            "datacenters": [self.datacenter],
            "sandbox_image": self.image,
            "slots_per_container": self.slots_per_container,
            "privileged": self.privileged,
            "cpu": self.cpu,
            "memory": self.memory,
            "driver": self.driver,
            "singularity_image": self.singularity_image,
            "min_containers": self.min_containers,
            "max_containers": self.max_containers,
            "acquire_timeout_s": self.acquire_timeout,
            "purge_job_on_start": self.purge_job_on_start,
        }
