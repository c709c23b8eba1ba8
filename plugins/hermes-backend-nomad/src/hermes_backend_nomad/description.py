"""The job description of a container: one group with one task, for driver docker or raw_exec."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import SecretStr

from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.sandbox import SandboxSpec

TASK: Final = "sandbox"
AGENT_CAPABILITIES: Final = ("setuid", "setgid", "kill", "chown")
"""The agent's capabilities: switch to the slots' users, end their processes, and chown their directories."""
_SECOND: Final = 1_000_000_000
_HEAD_ROOM: Final = 16
"""Processes of a container outside the slots' users: the first ones, the agent, its children before they switch user,
and the script that makes a workspace read-only.
"""
_OWN: Final = 3
"""Processes of an idle container: the first one with its child, and the agent."""
# A shell reaps orphaned processes; `sleep` as the first process would not.
_KEEPER: Final = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


def job_of(job_id: str, options: NomadOptions, meta: Mapping[str, str], groups: Sequence[Mapping[str, Any]]) -> Any:
    """Return the job with one group for each container.

    Not one group with a count: when a count goes down, Nomad chooses which allocation ends, while removing a group ends
    exactly its own allocation.
    """
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": "service",
        "Datacenters": list(options.datacenters),
        "Meta": dict(meta),
        "TaskGroups": list(groups),
        # No deployments: each would wait ten seconds for health checks that do not exist.
        "Update": {"MaxParallel": 0},
    }


def group_of(name: str, spec: SandboxSpec, options: NomadOptions, *, slots: int, image: str) -> dict[str, Any]:
    """Return the group of one container. It is never restarted: its sandboxes are lost with it."""
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
    """Return the limit of processes and threads for the commands of one sandbox."""
    return spec.pids or options.pids


def processes_of_all(spec: SandboxSpec, options: NomadOptions, *, slots: int) -> int:
    """Return the limit of processes and threads for a container."""
    # Without a limit per user, the commands of an unshared container would also get the head-room.
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
    """Return the command for `alloc exec` that runs Python with these arguments, directly or in Apptainer."""
    if options.driver == "docker":
        return [options.python, *python]
    assert options.singularity_image is not None
    network = [] if spec.network == "full" else ["--net", "--network", "none"]
    contained = ["--containall", "--no-privs", "--writable-tmpfs", "--cleanenv", "--pwd", "/", *network]
    words = [options.singularity_program, "-s", "exec", *contained, options.singularity_image, options.python, *python]
    # Through a shell, to find it on the node's own PATH.
    return ["/bin/sh", "-c", f"exec {shlex.join(words)}"]
