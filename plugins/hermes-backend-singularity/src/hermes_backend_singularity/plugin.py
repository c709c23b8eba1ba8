"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

import dataclasses
from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

SINGULARITY: Final = BackendSpec(
    name="singularity",
    summary="Instances of Apptainer or Singularity.",
    target="hermes_backend_singularity.backend:SingularityBackend",
    # The program itself is looked for when it is needed: it has two names, and the options can name its path.
    requires=("dist:spython>=0.3.14",),
    isolation=("container",),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "memory", "pids", "disk", "file_size"}),
    images=True,
    is_remote=False,
)
APPTAINER: Final = dataclasses.replace(
    SINGULARITY, name="apptainer", target="hermes_backend_singularity.backend:ApptainerBackend"
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `singularity`, and the same backend under the program's newer name."""
    return [SINGULARITY, APPTAINER]
