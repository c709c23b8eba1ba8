"""What this plugin declares. Nothing below is imported before a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

POOL: Final = BackendSpec(
    name="pool",
    summary="Slots on several machines or engines, as one pool.",
    target="hermes_pool.backend.pool_backend:PoolBackend",
    isolation=("none", "container+slot"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "disk", "file_size", "memory", "pids"}),
    images=True,
    is_remote=True,
)
"""What its members may have between them; each run is refused what the members it names do not share."""


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `pool`."""
    return [POOL]
