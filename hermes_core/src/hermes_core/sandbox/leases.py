"""Leases: what exists is on disk before it exists, so that what a killed process leaves can be found."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from hermes_core.sandbox.agent.processes import read_process
from hermes_core.sandbox.descriptors import failure

Owner = Literal["alive", "dead", "elsewhere"]


def default_lease_dir() -> Path:
    """Return the directory of this user's leases; read from the environment, for callers that name none."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "hermes-core" / "sandboxes"


def _this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _this_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One sandbox and the process that answers for it.

    A process id means something only within one boot and one PID namespace, and only together with its start time.
    """

    sandbox_id: str
    backend: str
    rollout_id: str | None
    created: float
    deadline: float
    owner_pid: int
    owner_start: int
    node: str
    boot_id: str
    pid_namespace: str
    handle: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_this_process(
        cls, *, sandbox_id: str, backend: str, rollout_id: str | None, deadline: float, handle: Mapping[str, Any]
    ) -> Self:
        """Return a lease whose owner is the calling process."""
        process = read_process(os.getpid())
        assert process is not None
        return cls(
            sandbox_id=sandbox_id,
            backend=backend,
            rollout_id=rollout_id,
            created=time.time(),
            deadline=deadline,
            owner_pid=process.pid,
            owner_start=process.start,
            node=os.uname().nodename,
            boot_id=_this_boot(),
            pid_namespace=_this_namespace(),
            handle=handle,
        )

    def owner(self) -> Owner:
        """Tell whether the owner still lives; "elsewhere" when that cannot be seen from here."""
        if self.node != os.uname().nodename:
            return "elsewhere"  # a home directory that several machines share
        if self.boot_id != _this_boot():
            return "dead"
        if self.pid_namespace != _this_namespace():
            return "elsewhere"
        process = read_process(self.owner_pid)
        alive = process is not None and process.start == self.owner_start and process.alive
        return "alive" if alive else "dead"

    def to_json(self) -> dict[str, Any]:
        """Return the lease as plain JSON values."""
        return dataclasses.asdict(self)


class LeaseBook:
    """A directory of leases, one file each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, lease: Lease) -> None:
        """Record a lease, all at once."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self.directory / f".{lease.sandbox_id}.partial"
            partial.write_text(json.dumps(lease.to_json()), encoding="utf-8")
            partial.replace(self._path(lease.sandbox_id))
        except OSError as error:
            hint = "set XDG_STATE_HOME to a writable directory"
            raise failure("the lease of a sandbox cannot be written", error, hint) from error

    def remove(self, sandbox_id: str) -> None:
        """Strike a lease out; one that is not there is fine."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._path(sandbox_id).unlink()

    def read(self) -> tuple[list[Lease], list[str]]:
        """Return the leases, oldest first, and a line for each file that is none."""
        leases = []
        problems = []
        for path in sorted(self.directory.glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # its owner has just finished
                try:
                    leases.append(Lease(**json.loads(path.read_text(encoding="utf-8"))))
                except (ValueError, TypeError) as error:
                    problems.append(f"{path} is not a lease: {error}")
        return sorted(leases, key=lambda lease: lease.created), problems

    def _path(self, sandbox_id: str) -> Path:
        return self.directory / f"{sandbox_id}.json"
