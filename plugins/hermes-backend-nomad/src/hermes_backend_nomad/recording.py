"""Refuse specs that Nomad cannot satisfy, and describe containers for the record."""

from __future__ import annotations

from typing import Any, Final

from hermes_backend_nomad.description import AGENT_CAPABILITIES, processes_of, processes_of_all
from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec

_OF_THE_CONTAINER: Final = ("cpu", "memory_mb")
_OPENING: Final = (
    "devices",
    "ipc_mode",
    "mount",
    "mounts",
    "pid_mode",
    "security_opt",
    "sysctl",
    "userns_mode",
    "uts_mode",
    "volumes",
)
"""Keys of the driver's config that may give a container access to its node."""


def refuse_what_nomad_shares(spec: SandboxSpec, options: NomadOptions) -> None:
    """Raise `SandboxRefusedError` for requirements that these options cannot satisfy."""
    asked = [name for name in _OF_THE_CONTAINER if getattr(spec, name) is not None]
    if spec.isolation == "container+slot" and asked:
        raise SandboxRefusedError(
            f"slots of a container share its {', '.join(asked)}: a slot cannot have its own limit",
            hint="--isolation container, or remove the limit",
        )
    if spec.isolation == "container+slot" and spec.pids is not None and options.first_uid is not None:
        raise SandboxRefusedError(
            "slots of a container share its pids if other containers have the same users (option first_uid)",
            hint="--isolation container, or remove pids or the option first_uid",
        )
    if options.driver == "singularity":
        _refuse_beside_docker(spec, asked)
    if spec.cpu is not None and options.core_mhz is None:
        raise SandboxRefusedError(
            f"Nomad allocates MHz: {spec.cpu:g} cores cannot be enforced without the MHz of a core",
            hint="set the backend's option core_mhz to that of the nodes (nomad node status -stats)",
        )


def _refuse_beside_docker(spec: SandboxSpec, asked: list[str]) -> None:
    if spec.isolation == "container+slot":
        raise SandboxRefusedError(
            "slots of a container with driver singularity would all have the same user", hint="--isolation container"
        )
    if asked:
        raise SandboxRefusedError(
            f"Nomad's driver raw_exec does not enforce {', '.join(asked)}", hint="driver: docker, or remove the limit"
        )
    if spec.image is not None:
        raise SandboxRefusedError(
            f"expected no image, as driver singularity has one for all sandboxes, got {spec.image!r}",
            hint="remove the task's image, or set driver: docker",
        )


def describe(spec: SandboxSpec, options: NomadOptions, *, job: str, image: str, slots: int) -> dict[str, Any]:
    """Return the provenance of a rollout; a slot's own process limit is added later if it has one."""
    is_docker = options.driver == "docker"
    whose = " for all slots together" if slots > 1 else ""
    processes = processes_of_all(spec, options, slots=slots) if slots > 1 else processes_of(spec, options)
    limits = {
        "memory": f"{spec.memory_mb or options.memory} MB{whose}",
        "pids": f"{processes}{whose}",
        **({"cpu": f"{spec.cpu:g} cores"} if spec.cpu is not None else {}),
    }
    return {
        "job": job,
        "image": image,
        "driver": options.driver,
        "uid": "of the slot" if is_docker else "that of Nomad's client",
        "capabilities": [*AGENT_CAPABILITIES] if is_docker else [],
        "limits": limits if is_docker else {},
        "weaker": _weaker(options) if is_docker else [],
    }


def _weaker(options: NomadOptions) -> list[str]:
    opened = [f"docker_config sets {key}" for key in _OPENING if options.docker_config.get(key)]
    return [*(["containers are privileged"] if options.privileged else []), *opened]
