"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

DOCKER: Final = BackendSpec(
    name="docker",
    summary="Containers of a Docker engine.",
    target="hermes_backend_docker.backend:DockerBackend",
    isolation=("container", "container+slot", "gvisor"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "memory", "pids", "disk", "file_size"}),
    images=True,
    is_remote=False,
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `docker`."""
    return [DOCKER]
