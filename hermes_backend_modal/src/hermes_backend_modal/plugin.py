"""The plugin module of this package; the backend is imported only when a run uses it."""

from __future__ import annotations

from typing import Final

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

MODAL: Final = BackendSpec(
    name="modal",
    summary="Sandboxes of the Modal service, under gVisor.",
    target="hermes_backend_modal.backend:ModalBackend",
    requires=("dist:modal>=1.6.4",),
    isolation=("container+slot", "gvisor"),
    networks=frozenset({"none", "allowlist"}),
    limits=frozenset({"cpu", "memory", "file_size"}),
    images=True,
    is_remote=True,
    trying_costs="starts sandboxes of the Modal service, which Modal charges for",
)


@hookimpl
def hermes_backends() -> list[BackendSpec]:
    """Declare the backend `modal`."""
    return [MODAL]
