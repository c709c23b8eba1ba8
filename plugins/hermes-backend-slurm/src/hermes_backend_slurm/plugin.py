"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

SLURM: Final = BackendSpec(
    name="slurm",
    summary="The nodes of a Slurm allocation.",
    target="hermes_backend_slurm.backend:SlurmBackend",
    isolation=("none", "bwrap"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"file_size", "pids"}),
    images=False,
    is_remote=True,
    trying_costs="requests an allocation from Slurm, unless it runs inside one, and waits for it in the queue",
    requires=("bin:srun", "bin:salloc", "bin:squeue", "bin:scontrol", "bin:scancel", "bin:sinfo"),
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `slurm`."""
    return [SLURM]
