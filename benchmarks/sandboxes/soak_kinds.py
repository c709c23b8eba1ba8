"""The processes to kill in each kind of sandbox, and how to count leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sandboxes.small_image import IMAGE
from hermes_sandbox.local import read_marker, read_process, read_table

Victim = int | str
Targets = Mapping[str, Callable[[Path], list[Victim]]]
_LABEL = "soak"


def _leases(folder: Path) -> set[str]:
    return {path.stem for path in (folder / "state").rglob("*.json")}


def marked(folder: Path) -> dict[int, str]:
    """Return the processes of this soak's sandboxes, with their marks."""
    mine = _leases(folder)
    marks = {pid: read_marker(pid) for pid in read_table()}
    return {pid: mark for pid, mark in marks.items() if mark is not None and mark.partition(".")[0] in mine}


def _chain(folder: Path, depth: int) -> list[Victim]:
    """Return the agents' processes by their distance from the caller.

    A process that has just been made for a command still shows the agent's mark; it is further away, and no target.
    """
    marks = {pid for pid, mark in marked(folder).items() if mark.endswith(".0")}
    parents = {pid: process.parent for pid in marks if (process := read_process(pid)) is not None}
    level = {pid for pid, parent in parents.items() if parent not in marks}
    for _ in range(depth):
        level = {pid for pid, parent in parents.items() if parent in level}
    return list(level)


def _outermost(folder: Path) -> list[Victim]:
    return _chain(folder, 0)


def _next(folder: Path) -> list[Victim]:
    return _chain(folder, 1)


def _containers(folder: Path) -> list[Victim]:
    return list(_docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={_LABEL}={folder.name}").split())


def _container_agents(folder: Path) -> list[Victim]:
    found = _containers(folder)
    if not found:
        return []
    listed = _docker("inspect", "--format", "{{.State.Pid}}", *map(str, found))
    return [int(pid) for pid in listed.split() if int(pid)]


def _container_commands(folder: Path) -> list[Victim]:
    """Return processes below the containers' first ones, which are the agents."""
    agents = {pid for pid in _container_agents(folder) if isinstance(pid, int)}
    return [pid for pid, process in read_table().items() if process.parent in agents]


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode()


def kill(victim: Victim) -> bool:
    """Kill a process, or remove a container by force; False when it has just gone."""
    if isinstance(victim, str):
        return bool(_docker("rm", "--force", victim))
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@dataclass(frozen=True)
class SoakKind:
    """A kind of sandbox: how to open it, what can be killed in it, and its possible leftovers."""

    backend: str
    isolation: str
    concurrent: int
    targets: Targets
    backend_options: Mapping[str, Any]
    pace: float = 1.0
    """Factor of the time between two kills: kills that hit many rollouts must be rarer, or none would finish."""

    def options(self, folder: Path) -> dict[str, Any]:
        """Return the backend's options; directories are made in the soak's own folder."""
        roots = folder / "roots"
        roots.mkdir(exist_ok=True)
        roots.chmod(0o755)
        folder.chmod(0o755)
        own: dict[str, Any] = {"root_dir": str(roots)}
        if self.backend == "docker":
            own = {"labels": {_LABEL: folder.name}}
        return {**self.backend_options, **own}

    def left(self, folder: Path) -> dict[str, int]:
        """Count the current resources of this soak's sandboxes."""
        if self.backend == "docker":
            return {"containers": len(_containers(folder)), "processes": len(_container_commands(folder))}
        return {"processes": len(marked(folder)), "directories": len(list((folder / "roots").iterdir()))}


_DOCKER_OPTIONS = {"image": IMAGE, "pull": "never"}
KINDS: Mapping[str, SoakKind] = {
    "none": SoakKind("local", "none", 16, {"agent": _outermost}, {}),
    "bwrap": SoakKind(
        "local", "bwrap", 16, {"agent": _next, "launcher": _outermost}, {}
    ),
    "docker": SoakKind(
        "docker", "container", 12,
        {"agent": _container_agents, "container": _containers}, _DOCKER_OPTIONS,
    ),
    "docker pool": SoakKind(
        "docker", "container+slot", 16,
        {"agent": _container_agents, "container": _containers}, _DOCKER_OPTIONS, pace=8.0,
    ),
}  # fmt: skip
