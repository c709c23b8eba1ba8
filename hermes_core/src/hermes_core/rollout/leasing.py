"""Choose where a backend writes the leases of its sandboxes: in the installed store, unless it comes with one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import BrokenComponentError, UnavailableComponentError, UnknownComponentError
from hermes_core.contracts.leases import LeaseStore, LeasingBackend

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

LEASE_STORE: Final = "files"
"""The store of every backend that comes without one; `prefer` chooses if several plugins declare it."""
_DEFAULT_OWNER: Final = "hermes-sandbox:sandbox"
"""The plugin whose store is used if nothing chooses: the one that `hermes-core sandboxes` reads."""
_UNSETTLED: Final = """lease_store %r is declared by %s, and nothing chooses: leases are written to that of %s
  → to choose another, write prefer: {"lease_store:files": PLUGIN} under 'plugins:' in a config"""


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
        return registry.create("lease_store", _choose_store(registry), options)
    except UnknownComponentError as error:
        raise UnavailableComponentError(
            f"backend {name!r} cannot be used: its sandboxes outlive a process that is killed, and nothing that is "
            "loaded writes down which there are",
            hint=error.hint,
        ) from error


def _choose_store(registry: Registry) -> str:
    """Return the store's name, with its plugin in front and a warning where the default owner's is one of several."""
    plugins = next((c.plugins for c in registry.conflicts if (c.kind, c.name) == ("lease_store", LEASE_STORE)), ())
    if _DEFAULT_OWNER not in plugins:
        return LEASE_STORE
    logging.getLogger(__name__).warning(_UNSETTLED, LEASE_STORE, ", ".join(plugins), _DEFAULT_OWNER)
    return f"{_DEFAULT_OWNER}:{LEASE_STORE}"
