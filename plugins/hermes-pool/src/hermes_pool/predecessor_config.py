"""The predecessor's configuration of a pool, and what it means here."""

from __future__ import annotations

import logging
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from hermes_core.contracts.errors import ConfigError
from hermes_pool.options import PoolOptions

_LOG: Final = logging.getLogger(__name__)
_WITHOUT_EFFECT: Final = {
    "auto_build_local_image": "no image is built in passing; the image must be there",
    "scale_cooldown": "starts of hosts are paced by how the last ones went",
}


class SlotPoolConfig(BaseModel):
    """The predecessor's fields with its defaults; unknown ones are refused, those without effect noted in the log."""

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
    """Not needed: starts are paced by how they go."""
    purge_job_on_start: bool = False
    auto_build_local_image: bool = True
    """Not done: the image must be there, and the error says how it is built when it is not."""
    dockerfile_path: str | None = None
    docker_build_context: str | None = None

    @model_validator(mode="after")
    def _note_what_has_no_effect(self) -> Self:
        for name in sorted(self.model_fields_set & _WITHOUT_EFFECT.keys()):
            _LOG.warning("%s has no effect: %s", name, _WITHOUT_EFFECT[name])
        return self

    def pool_options(self) -> PoolOptions:
        """Return what the pool itself is told."""
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
            ConfigError: An image was to be built, which is no longer done in passing.
        """
        if self.dockerfile_path is not None or self.docker_build_context is not None:
            raise ConfigError(
                f"a pool builds no image, and dockerfile_path is {self.dockerfile_path!r}",
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
