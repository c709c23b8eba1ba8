"""Decides how each limit of a sandbox is enforced on this machine, and refuses those that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local.cgroups import ControlGroups, Controller

_OWN_PROCESSES: Final = 3
"""The processes of an idle sandbox: bubblewrap outside, its first process inside, the agent."""
_PERIOD: Final = 100_000
_SCRATCH: Final = 64 << 20
_SHARE: Final = 4
"""Each of three places in memory gets a quarter of it: files there cannot be killed, and must leave room to run."""
_FIELDS: Final[Mapping[Controller, str]] = {"memory": "memory_mb", "pids": "pids", "cpu": "cpu"}
_HINT: Final = (
    "run as root, or name a writable control group (version 2) with these controllers in the backend option cgroup, "
    "or leave {field} out"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What to set up for one sandbox, and in `enforced`, how each requested limit is enforced."""

    controllers: tuple[Controller, ...] = ()
    settings: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    """Directory of the sandbox's group -> file -> content."""
    address_space: int | None = None
    """Bytes of memory that each process may map."""
    disk: int | None = None
    """Bytes of all the sandbox's writable directories together."""
    scratch: int | None = None
    """Bytes of each other place in memory inside bubblewrap: /, /dev/shm and the agent's own."""
    enforced: Mapping[str, str] = field(default_factory=dict)


def plan_limits(
    spec: SandboxSpec, groups: ControlGroups, sandbox_id: str, *, per_process: bool, pids: int | None = None
) -> Limits:
    """Decide how the limits of `spec` are enforced.

    `pids` is the number of processes if `spec` names none; None leaves that to the agent. If no control group
    can be made for them, the agent bounds them too, and `enforced` does not list them.

    Raises:
        SandboxRefusedError: One of them cannot be; `per_process` accepts a memory limit of each process instead.
    """
    controllers: list[Controller] = []
    settings: dict[Path, dict[str, str]] = {}
    enforced: dict[str, str] = {}
    address_space = None
    for controller, name in _FIELDS.items():
        value = getattr(spec, name)
        if value is None and name == "pids":
            value = pids
        if value is None:
            continue
        _require_positive(name, value)
        place = groups.place(controller)
        if place is not None:
            controllers.append(controller)
            [path] = groups.paths(sandbox_id, [controller])
            settings.setdefault(path, {}).update(_files(controller, value, place.version))
            number = f"{value}, by " if controller == "pids" else ""
            enforced[controller] = f"{number}cgroup v{place.version}"
        elif controller == "memory" and per_process:
            address_space = value << 20
            enforced["memory"] = "rlimit, per process"
        elif controller != "pids":
            raise _impossible(controller, name, groups)
    if spec.file_size_mb is not None:
        enforced["file_size"] = "rlimit, per process"
    if spec.disk_mb is not None:
        _require_positive("disk_mb", spec.disk_mb)
        enforced["disk"] = "tmpfs"
    disk = None if spec.disk_mb is None else spec.disk_mb << 20
    return Limits(tuple(controllers), settings, address_space, disk, _scratch(spec), enforced)


def _scratch(spec: SandboxSpec) -> int | None:
    of_disk = [] if spec.disk_mb is None else [_SCRATCH]
    of_memory = [] if spec.memory_mb is None else [(spec.memory_mb << 20) // _SHARE]
    return min(of_disk + of_memory, default=None)


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise SandboxRefusedError(f"limit {name}: expected a number above 0, got {value}")


def _impossible(controller: Controller, name: str, groups: ControlGroups) -> SandboxRefusedError:
    hint = _HINT.format(field=name)
    if controller == "memory":
        hint += '; the backend option memory_limit="per_process" accepts one of each process'
    return SandboxRefusedError(
        f"limit {name} cannot be enforced here, since no control group with the controller {controller!r} can be used: "
        f"{groups.reason(controller)}",
        hint=hint,
    )


def _files(controller: Controller, value: float, version: int) -> dict[str, str]:
    if controller == "pids":
        return {"pids.max": str(int(value) + _OWN_PROCESSES)}
    if controller == "memory":
        size = str(int(value) << 20)
        if version == 1:
            return {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
        return {"memory.max": size, "memory.swap.max": "0"}
    quota = max(1000, int(value * _PERIOD))
    if version == 1:
        return {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(quota)}
    return {"cpu.max": f"{quota} {_PERIOD}"}
