"""Where a backend writes the leases of its sandboxes: in its own store, or in the installed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from hermes_core.contracts.errors import BackendError, UnknownComponentError
from hermes_core.contracts.leases import LeaseStore, LeasingBackend

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

LEASE_STORE: Final = "files"
"""Name of the store for backends that bring none."""


def supply_leases(
    backend: object, registry: Registry, name: str, *, options: Mapping[str, Any] | None = None
) -> LeaseStore | None:
    """Return the store of the backend `name`, after giving it one where it has none; None for one that leases nothing.

    `options` are those of a store that takes the place of the backend's own.

    Raises:
        BackendError: It needs one, and no plugin that is loaded brings any.
    """
    if not isinstance(backend, LeasingBackend):
        return None
    if backend.leases is None or options is not None:
        try:
            store = cast("LeaseStore", registry.create("lease_store", LEASE_STORE, options))
        except UnknownComponentError as error:
            raise BackendError(
                f"the sandboxes of backend {name!r} outlive a process that is killed, and nothing that is loaded "
                "writes down which there are",
                hint=error.hint,
            ) from error
        backend.lease_with(store)
    return backend.leases
