"""Leases: records of sandboxes, written before these exist, by which leftovers of killed processes are removed.

A backend whose sandboxes can outlive the process that opened them is a `LeasingBackend`. It takes a lease in a
`LeaseStore` before it makes a sandbox, and gives it up when the sandbox is gone. A run chooses the store: the component
`files` of kind `lease_store`, which hermes-sandbox declares and `prefer` in a config may take from another plugin. A
backend that comes with a store, `leases`, keeps it.

To *collect* is to go through the leases of processes that have died; to *reclaim* is to remove one sandbox by its
lease; to *sweep* is to look for sandboxes that no lease names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes_core.contracts.sandbox import TerminalBackend

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hermes_core.discovery import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """What a lease says of one sandbox; the store adds the process that owns it.

    `handle` is what the backend's `reclaim` needs, in JSON values that are known before the sandbox exists.
    `lifetime` is in seconds: a lease that was not renewed for that long is shown as late, with no other effect.
    `options` are the backend's own; a store writes none of their secrets.
    """

    sandbox_id: str
    backend: str
    handle: Mapping[str, Any]
    lifetime: float = 3600.0
    rollout_id: str | None = None
    options: BaseModel | None = None


@dataclass(slots=True)
class Collected:
    """Result of removing sandboxes: the ids of those removed, and of those that are left with the reason.

    `problems` are lines about leases and places that could not be read.
    """

    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@runtime_checkable
class LeaseStore(Protocol):
    """Where the leases of one backend object are written, and found by other processes.

    Used on one event loop at a time, on which it may renew what it holds.
    """

    @property
    def count(self) -> int:
        """How many leases this object has taken and not given up."""

    async def take(self, terms: LeaseTerms) -> None:
        """Write a lease. Other processes can read it when this returns; when it raises or is cancelled, there is none.

        Raises:
            BackendError: It cannot be written; then no sandbox may be made.
        """

    async def amend(self, sandbox_id: str, handle: Mapping[str, Any]) -> None:
        """Replace the handle in a sandbox's lease; do nothing if this object holds no such lease."""

    async def give_up(self, sandbox_id: str) -> None:
        """Remove the lease of a sandbox that is gone; a missing lease is not an error."""

    async def collect(self, registry: Registry) -> Collected:
        """Remove the sandboxes of dead processes, with the backends of `registry`; never those of a living one."""


@runtime_checkable
class LeasingBackend(TerminalBackend, Protocol):
    """A terminal backend whose sandboxes can outlive the process that opened them.

    To collect, a backend is made from the options in the lease and its `reclaim` is called. Wrappers must define these
    methods themselves: callers look for the methods, they do not try them.
    """

    @property
    def leases(self) -> LeaseStore | None:
        """Where it writes its leases; None until `lease_with` is called, which a run does before the first sandbox."""

    def lease_with(self, store: LeaseStore) -> None:
        """Write leases to `leases` from now on; called before the first sandbox is opened."""

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove the sandbox that a handle names, also another process's; if it is gone already, that is success.

        Raises:
            BackendError: It is still there, or cannot be reached.
        """

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Return ids of sandboxes of dead owners, found by their marks, leased or not; with `remove`, remove them."""
