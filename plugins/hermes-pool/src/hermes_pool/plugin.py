"""The declarations of this plugin. Their targets are imported when a run uses them."""

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
"""The pool declares what members can have. A run that requires more than its members have in common is refused."""


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `pool`."""
    return [POOL]
