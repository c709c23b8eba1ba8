"""The plugin of the broken lease stores, and the stores: the store of hermes-sandbox with one behaviour changed."""

from __future__ import annotations

import asyncio
import dataclasses

from hermes_core.contracts.leases import Collected
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import LeaseStoreSpec
from hermes_sandbox import FileLeaseStore, SandboxReclaimer
from hermes_sandbox.backends import Lease


@hookimpl
def hermes_lease_stores():
    kinds = [value for value in globals().values() if isinstance(value, type) and issubclass(value, FileLeaseStore)]
    return [
        LeaseStoreSpec(name=kind.__name__.lower(), summary="Leases.", target=f"broken_lease_stores:{kind.__name__}")
        for kind in kinds
    ]


class Reference(FileLeaseStore):
    pass


class HoldsNothing(FileLeaseStore):
    @property
    def count(self):
        return 0


class HoldsWhatOthersHold(FileLeaseStore):
    @property
    def count(self):
        return len(self.book.read()[0])


class GivesUpOnlyWhatIsThere(FileLeaseStore):
    async def give_up(self, sandbox_id):
        if sandbox_id not in self._keeper._held:
            raise KeyError(sandbox_id)
        await super().give_up(sandbox_id)


class NeedsItsDirectory(FileLeaseStore):
    async def collect(self, registry):
        list(self.directory.iterdir())
        return await super().collect(registry)


class CollectsTheLiving(FileLeaseStore):
    async def collect(self, registry):
        return await SandboxReclaimer(self.book, registry).remove(self.book.read()[0])


class CollectsNothing(FileLeaseStore):
    async def collect(self, registry):
        return Collected()


class WritesLate(FileLeaseStore):
    async def take(self, terms):
        asyncio.get_running_loop().call_later(600, self.book.write, Lease.of_terms(terms))
        self._keeper._held[terms.sandbox_id] = (self.book, Lease.of_terms(terms))


class KeepsWhatItCollected(FileLeaseStore):
    async def collect(self, registry):
        leases = self.book.read()[0]
        done = await super().collect(registry)
        for lease in leases:
            # Not with concurrent collectors: then it would be luck whether another one sees it.
            if lease.sandbox_id in done.removed and len(leases) <= 2:
                self.book.write(lease)
        return done


class _Unclaimed(SandboxReclaimer):
    async def remove(self, leases):
        done = Collected()
        for lease in leases:
            await asyncio.sleep(0)
            await self._remove(lease, done)
        return done


class CollectsWithoutClaims(FileLeaseStore):
    async def collect(self, registry):
        return await _Unclaimed(self.book, registry).collect(backends=())


class GivesUpWhatIsLeft(FileLeaseStore):
    async def collect(self, registry):
        done = await super().collect(registry)
        for sandbox_id in done.failed:
            self.book.remove(sandbox_id)
        return done


class KeepsWhatWasGivenUp(FileLeaseStore):
    async def give_up(self, sandbox_id):
        self._keeper._held.pop(sandbox_id, None)


class AmendsNothing(FileLeaseStore):
    async def amend(self, sandbox_id, handle):
        return None


class AmendsAnything(FileLeaseStore):
    async def take(self, terms):
        self.terms = terms
        await super().take(terms)

    async def amend(self, sandbox_id, handle):
        self.book.write(Lease.of_terms(dataclasses.replace(self.terms, handle=handle)))


class TakesAllTheSame(FileLeaseStore):
    async def take(self, terms):
        # The write continues even if the caller is cancelled.
        self.taking = asyncio.ensure_future(super().take(terms))
        try:
            await asyncio.shield(self.taking)
        except asyncio.CancelledError:
            await self.taking
            raise


class WritesSecrets(FileLeaseStore):
    async def take(self, terms):
        await super().take(terms)
        key = terms.options.key
        if key is not None:
            lease = Lease.of_terms(terms)
            options = {**lease.options, "key": key.get_secret_value()}
            self.book.write(dataclasses.replace(lease, options=options, withheld=()))
