"""What a spec asks of Nomad and its containers: what is refused, what is recorded."""

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
"""Keys of the driver's config that may let a container reach what is its node's."""


def refuse_what_nomad_shares(spec: SandboxSpec, options: NomadOptions) -> None:
    """Raise `SandboxRefusedError` for what these options cannot give a sandbox."""
    asked = [name for name in _OF_THE_CONTAINER if getattr(spec, name) is not None]
    if spec.isolation == "container+slot" and asked:
        raise SandboxRefusedError(
            f"slots of a container share its {', '.join(asked)}: none of them can have a limit of its own",
            hint="--isolation container, or leave the limit out",
        )
    if spec.isolation == "container+slot" and spec.pids is not None and options.first_uid is not None:
        raise SandboxRefusedError(
            "slots of a container share its pids where other containers have the same users (option first_uid)",
            hint="--isolation container, or leave pids or the option first_uid out",
        )
    if options.driver == "singularity":
        _refuse_beside_docker(spec, asked)
    if spec.cpu is not None and options.core_mhz is None:
        raise SandboxRefusedError(
            f"Nomad shares out MHz: {spec.cpu:g} cores cannot be enforced without knowing a core's",
            hint="set the backend's option core_mhz to that of the nodes (nomad node status -stats)",
        )


def _refuse_beside_docker(spec: SandboxSpec, asked: list[str]) -> None:
    if spec.isolation == "container+slot":
        raise SandboxRefusedError(
            "slots of a container of driver singularity would all be one user", hint="--isolation container"
        )
    if asked:
        raise SandboxRefusedError(
            f"Nomad's driver raw_exec enforces no {', '.join(asked)}", hint="driver: docker, or leave the limit out"
        )
    if spec.image is not None:
        raise SandboxRefusedError(
            f"driver singularity runs one image for all, wanted {spec.image!r} for this one",
            hint="leave the task's image out, or driver: docker",
        )


def describe(spec: SandboxSpec, options: NomadOptions, *, job: str, image: str, slots: int) -> dict[str, Any]:
    """Return what is recorded with a rollout; the bound of a slot's own user is added where there is one."""
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
