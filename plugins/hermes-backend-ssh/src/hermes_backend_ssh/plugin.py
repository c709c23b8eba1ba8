"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

SSH: Final = BackendSpec(
    name="ssh",
    summary="A machine reached by SSH.",
    target="hermes_backend_ssh.backend:SshBackend",
    isolation=("none", "bwrap"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"file_size", "pids"}),
    images=False,
    is_remote=True,
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `ssh`."""
    return [SSH]
