"""The plugin module of this package; backend and engine are imported only when a run uses them."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec, EngineSpec

RAY: Final = BackendSpec(
    name="ray",
    summary="The nodes of a Ray cluster.",
    target="hermes_backend_ray.backend:RayBackend",
    requires=("dist:ray>=2.50",),
    isolation=("none", "bwrap"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"file_size", "pids"}),
    images=False,
    is_remote=True,
)
ENGINE: Final = EngineSpec(
    name="ray",
    summary="Rollouts on workers of a Ray cluster.",
    target="hermes_backend_ray.engine:RayEngine",
    requires=("dist:ray>=2.50",),
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `ray`."""
    return [RAY]


@hookimpl
def hermes_engines() -> list[EngineSpec]:
    """Declare the engine `ray`."""
    return [ENGINE]
