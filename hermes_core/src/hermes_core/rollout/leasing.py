"""Choose where a backend writes the leases of its sandboxes: in the installed store, unless it comes with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import BrokenComponentError, UnavailableComponentError, UnknownComponentError
from hermes_core.contracts.leases import LeaseStore, LeasingBackend

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

LEASE_STORE: Final = "files"
"""The store of every backend that comes without one; `prefer` chooses if several plugins declare it."""


def supply_lease_store(
    backend: object, registry: Registry, name: str, *, options: Mapping[str, Any] | None = None
) -> LeaseStore | None:
    """Return the lease store of the backend `name`, which is given one if it has none; None if it takes no leases.

    `options` are those of a store that replaces the backend's own.

    Raises:
        UnavailableComponentError: It needs a store, and no loaded plugin has one.
        BrokenComponentError: It does not use the store that it was given.
    """
    if not isinstance(backend, LeasingBackend):
        return None
    if backend.leases is None or options is not None:
        backend.lease_with(_new_store(registry, name, options))
    store = backend.leases
    if not isinstance(store, LeaseStore):
        raise BrokenComponentError(
            f"backend {name!r}: expected a lease store, got {type(store).__name__}",
            hint=f"see: hermes-core plugins show backend:{name}",
        )
    return store


def _new_store(registry: Registry, name: str, options: Mapping[str, Any] | None) -> Any:
    try:
        return registry.create("lease_store", LEASE_STORE, options)
    except UnknownComponentError as error:
        raise UnavailableComponentError(
            f"backend {name!r} cannot be used: its sandboxes outlive a process that is killed, and nothing that is "
            "loaded writes down which there are",
            hint=error.hint,
        ) from error
