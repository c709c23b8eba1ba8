"""What this plugin declares. Nothing below is imported before a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import EngineSpec

ENGINE: Final = EngineSpec(
    name="ray",
    summary="Rollouts on workers of a Ray cluster.",
    target="hermes_backend_ray.engine:RayEngine",
    requires=("dist:ray>=2.50",),
)


@hookimpl
def hermes_engines() -> list[EngineSpec]:
    """Declare the engine `ray`."""
    return [ENGINE]
