"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

NOMAD: Final = BackendSpec(
    name="nomad",
    summary="Containers on the nodes of a Nomad cluster, several rollouts in each.",
    target="hermes_backend_nomad.backend:NomadBackend",
    requires=("dist:aiohttp",),
    isolation=("container+slot", "container"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "memory", "pids", "file_size"}),
    images=True,
    is_remote=True,
    trying_costs="starts a job on the Nomad cluster, with a container that takes its share of a node",
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `nomad`."""
    return [NOMAD]
