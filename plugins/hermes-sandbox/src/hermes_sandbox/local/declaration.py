"""The declaration of backend `local`; light, because listing plugins reads it."""

from __future__ import annotations

from typing import Final

from hermes_core.specs import BackendSpec

LOCAL: Final = BackendSpec(
    name="local",
    summary="Processes of this machine, plain or inside bubblewrap.",
    target="hermes_sandbox.local.backend:LocalBackend",
    isolation=("none", "bwrap"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "disk", "file_size", "memory", "pids"}),
)
