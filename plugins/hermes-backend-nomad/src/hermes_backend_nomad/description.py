"""What Nomad is told of a container: one group with one task, of driver docker or raw_exec."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import SecretStr

from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.sandbox import SandboxSpec

TASK: Final = "sandbox"
AGENT_CAPABILITIES: Final = ("setuid", "setgid", "kill", "chown")
"""The capabilities of the agent: to become the slots' users, end their processes, and give them their directories."""
_SECOND: Final = 1_000_000_000
_HEAD_ROOM: Final = 16
"""Processes of a container that no slot's user can take: the first ones, the agent, what it starts until that has its
user, and what makes a workspace read-only."""
_OWN: Final = 3
"""Processes of a container before it runs anything: its first one with its child, and the agent."""
# A shell reaps whatever is left to it, which `sleep` as the first process would not.
_KEEPER: Final = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


def job_of(job_id: str, options: NomadOptions, meta: Mapping[str, str], groups: Sequence[Mapping[str, Any]]) -> Any:
    """Return the job with its groups, one for each container.

    A group for each, and not one group with a count: Nomad itself chooses which allocation ends when a count goes down,
    and a group that is taken out ends exactly its own.
    """
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": "service",
        "Datacenters": list(options.datacenters),
        "Meta": dict(meta),
        "TaskGroups": list(groups),
        # No deployments: each would wait ten seconds for the health of containers that nobody checks.
        "Update": {"MaxParallel": 0},
    }


def group_of(name: str, spec: SandboxSpec, options: NomadOptions, *, slots: int, image: str) -> dict[str, Any]:
    """Return one container. It is started once: who was in it has lost it, and who needs another asks for one."""
    return {
        "Name": name,
        "Count": 1,
        "RestartPolicy": {"Attempts": 0, "Interval": 60 * _SECOND, "Delay": _SECOND, "Mode": "fail"},
        "ReschedulePolicy": {"Attempts": 0, "Interval": 0, "Unlimited": False},
        "EphemeralDisk": {"SizeMB": 10},
        "Tasks": [
            {
                "Name": TASK,
                "Driver": "docker" if options.driver == "docker" else "raw_exec",
                "User": "0:0" if options.driver == "docker" else "",
                "Config": _docker(spec, options, slots=slots, image=image) if options.driver == "docker" else _raw(),
                "Resources": _resources(spec, options),
                "KillTimeout": _SECOND,
                "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
            }
        ],
    }


def processes_of(spec: SandboxSpec, options: NomadOptions) -> int:
    """Return how many processes and threads the commands of one sandbox may have."""
    return spec.pids or options.pids


def processes_of_all(spec: SandboxSpec, options: NomadOptions, *, slots: int) -> int:
    """Return how many processes and threads a container may have."""
    # Where users are not held to a number, the commands of a container of its own would have the head-room as well.
    shared = slots > 1 or options.first_uid is None
    return processes_of(spec, options) * slots + (_HEAD_ROOM if shared else _OWN)


def _resources(spec: SandboxSpec, options: NomadOptions) -> dict[str, int]:
    cpu = options.cpu if spec.cpu is None or options.core_mhz is None else round(spec.cpu * options.core_mhz)
    return {"CPU": cpu, "MemoryMB": spec.memory_mb or options.memory}


def _docker(spec: SandboxSpec, options: NomadOptions, *, slots: int, image: str) -> dict[str, Any]:
    return {
        **_reveal(options.docker_config),
        "image": image,
        "entrypoint": ["/bin/sh", "-c", _KEEPER],
        "network_mode": "bridge" if spec.network == "full" else "none",
        "pids_limit": processes_of_all(spec, options, slots=slots),
        "cap_drop": ["ALL"],
        "cap_add": list(AGENT_CAPABILITIES),
        "security_opt": [*options.docker_config.get("security_opt", ()), "no-new-privileges"],
        **({"privileged": True} if options.privileged else {}),
        **({"cpu_hard_limit": True} if spec.cpu is not None else {}),
    }


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {name: _reveal(item) for name, item in value.items()}
    return [_reveal(item) for item in value] if isinstance(value, list) else value


def _raw() -> dict[str, Any]:
    return {"command": "/bin/sh", "args": ["-c", _KEEPER]}


def agent_command(options: NomadOptions, spec: SandboxSpec, python: Sequence[str]) -> list[str]:
    """Return what `alloc exec` starts for a Python with these arguments: itself, or Apptainer with it."""
    if options.driver == "docker":
        return [options.python, *python]
    assert options.singularity_image is not None
    network = [] if spec.network == "full" else ["--net", "--network", "none"]
    contained = ["--containall", "--no-privs", "--writable-tmpfs", "--cleanenv", "--pwd", "/", *network]
    words = [options.singularity_program, "-s", "exec", *contained, options.singularity_image, options.python, *python]
    # By a shell: it is looked for on the node's own PATH.
    return ["/bin/sh", "-c", f"exec {shlex.join(words)}"]
