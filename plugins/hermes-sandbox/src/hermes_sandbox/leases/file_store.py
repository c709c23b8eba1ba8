"""The lease store `files`: a directory of this user, with a file for each lease."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from hermes_core.contracts.leases import Collected, LeaseTerms, LeasingBackend
from hermes_sandbox.leases.book import Lease, LeaseBook, default_lease_dir
from hermes_sandbox.leases.keeper import LeaseKeeper

if TYPE_CHECKING:
    from hermes_core.discovery import Registry


class FileLeaseOptions(BaseModel):
    """The options of the lease store `files`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Path | None = None
    """The user's state directory if None: $XDG_STATE_HOME/hermes-core/sandboxes, or below ~/.local/state."""


class FileLeaseStore:
    """Writes the leases of one backend object; see `hermes_core.contracts.leases.LeaseStore`."""

    Options = FileLeaseOptions

    def __init__(self, options: FileLeaseOptions | None = None) -> None:
        self.directory = None if options is None else options.directory
        self._keeper = LeaseKeeper()

    @classmethod
    def at(cls, directory: Path | None) -> Self:
        """Make the store of a directory, of the user's own if None."""
        return cls(FileLeaseOptions(directory=directory))

    @property
    def book(self) -> LeaseBook:
        """The directory, which holds the leases of other processes too."""
        return LeaseBook(self.directory or default_lease_dir())

    @property
    def count(self) -> int:
        """How many leases this object has taken and not given up."""
        return self._keeper.count

    async def take(self, terms: LeaseTerms) -> None:
        """Write a lease of this process."""
        await self._keeper.take(self.book, Lease.of_terms(terms))

    async def amend(self, sandbox_id: str, handle: Mapping[str, Any]) -> None:
        """Replace the handle in a lease."""
        await self._keeper.amend(sandbox_id, handle)

    async def give_up(self, sandbox_id: str) -> None:
        """Remove a lease."""
        await self._keeper.give_up(self.book, sandbox_id)

    async def collect(self, registry: Registry) -> Collected:
        """Remove the sandboxes of dead processes; imports a backend only if there is one to remove."""
        book = self.book
        dead, problems = await asyncio.to_thread(book.dead)
        done = Collected()
        if dead:
            from hermes_sandbox.backend.reclaim import SandboxReclaimer

            done = await SandboxReclaimer(book, registry).remove(dead)
        done.problems += problems
        return done


def lease_in_files(backend: object, directory: Path | None = None) -> None:
    """Let a backend write leases in a directory; None means its own store, or else the user's directory."""
    if isinstance(backend, LeasingBackend) and (directory is not None or backend.leases is None):
        backend.lease_with(FileLeaseStore.at(directory))
