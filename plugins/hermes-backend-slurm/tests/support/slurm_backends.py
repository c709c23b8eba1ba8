"""Backends on a test cluster, and helpers to observe them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from hermes_backend_slurm.allocation import AllocationLease
from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_testing.watching import eventually


def wait_for_a_reason(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a job's queue timeout only once the job is in the queue and Slurm has given a reason for its waiting."""
    ask = AllocationLease.ask

    def has_a_reason() -> bool:
        return bool(set(cluster.call("squeue", "-h", "-t", "PD", "-o", "%r").stdout.split()) - {"None"})

    async def ask_and_wait(*arguments: Any, **named: Any) -> AllocationLease:
        lease = await ask(*arguments, **named)
        try:
            assert await eventually(has_a_reason), "Slurm does not say why the job waits"
        except BaseException as error:
            await lease.give_up(error)
            raise
        return lease

    monkeypatch.setattr(AllocationLease, "ask", ask_and_wait)


def backend_on(cluster: SlurmCluster, folder: Path, **options: object) -> SlurmBackend:
    """Make a backend whose sandboxes and leases are in the test's own folder."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    given = {"conf": str(cluster.conf), "root_dir": str(root), "job_id": None, "queue_timeout": 100, **options}
    backend = SlurmBackend(SlurmOptions(**given))
    backend.lease_dir = folder / "leases"
    return backend


_CALLER = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(options, leases, isolation, token):
    backend = SlurmBackend(SlurmOptions(**json.loads(options)))
    backend.lease_dir = Path(leases)
    boxes = [await backend.open(SandboxSpec(isolation=isolation)) for _ in range(2)]
    for box in boxes:
        await box.exec(f"setsid sleep {token} & echo begun")
    print("begun", flush=True)
    await boxes[0].exec("sleep 600")

asyncio.run(main(*sys.argv[1:]))
"""


def caller_of(backend: SlurmBackend, token: str, isolation: str = "none") -> list[str]:
    """Return the command of a process that opens two sandboxes, says "begun", and waits to be killed."""
    options = json.dumps(backend.options.model_dump(mode="json", exclude_unset=True))
    return [sys.executable, "-c", _CALLER, options, str(backend.lease_dir), isolation, token]
