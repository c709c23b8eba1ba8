"""Leases: what is written of a sandbox before it exists, so that what a killed process leaves can be found and removed.

A backend whose sandboxes can outlive the process that opened them is a `LeasingBackend`. It takes a lease in a
`LeaseStore` before it makes a sandbox, and gives it up when the sandbox is gone. A backend may bring a store; for all
others it is the component `files` of kind `lease_store`, which hermes-sandbox has, and which the commands
`hermes-core sandboxes` read.

To *collect* is to go through the leases of processes that have died, to *reclaim* is to remove one sandbox by what its
lease says, to *sweep* is to look for what no lease names.
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
    """What is written of one sandbox, besides the process that answers for it.

    `handle` is what the backend's `reclaim` needs, in plain JSON values that are known before the sandbox exists.
    `lifetime` is in seconds: a lease that nobody has renewed for so long is shown as late; nothing ends by that.
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
    """What came of removing sandboxes: ids of those that are gone, and of those that are left, each with the reason.

    `problems` are lines about what could not be looked at.
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
        ...

    async def take(self, terms: LeaseTerms) -> None:
        """Write a lease; others can read it when this returns, and there is none when it raises or is cancelled.

        Raises:
            BackendError: It cannot be written. No sandbox may be made then.
        """
        ...

    async def amend(self, sandbox_id: str, handle: Mapping[str, Any]) -> None:
        """Write the lease of a sandbox anew, with another handle; nothing is done where no lease is held."""
        ...

    async def give_up(self, sandbox_id: str) -> None:
        """Remove the lease of a sandbox that is gone; one that is not there is fine."""
        ...

    async def collect(self, registry: Registry) -> Collected:
        """Remove the sandboxes of processes that have died, with the backends of `registry`; never a living one's."""
        ...


@runtime_checkable
class LeasingBackend(TerminalBackend, Protocol):
    """What a terminal backend has besides whose sandboxes can outlive the process that opened them.

    To collect, a backend is made anew from the options in the lease, and told to `reclaim`. Wrappers must define these
    methods themselves: they are looked for, not called on trial.
    """

    @property
    def leases(self) -> LeaseStore | None:
        """Where it writes its leases; None until it is told by `lease_with`, and then it opens no sandbox."""
        ...

    def lease_with(self, store: LeaseStore) -> None:
        """Write leases there from now on; called before the first sandbox is opened."""
        ...

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove what a handle names, whoever made it; nothing to remove is success.

        Raises:
            BackendError: It is still there, or cannot be reached.
        """
        ...

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Return the ids of what dead owners left, found by marks on it, lease or not; `remove` it as well."""
        ...
