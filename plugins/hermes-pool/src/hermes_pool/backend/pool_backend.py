"""Backend `pool`: opens the sandboxes of one run on several other backends, its members."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Final, cast

from hermes_core.contracts.errors import BackendError, HermesError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.leases import LeaseStore, LeaseTerms
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool.backend.members import Build, Member, build_member, name_member
from hermes_pool.backend.offering import Offering
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.plugin import POOL
from hermes_pool.refusals import member_not_ready_error, no_member_error, with_member_name
from hermes_pool.slot_pool.host_kinds import Rank, Waiter
from hermes_pool.slot_pool.pool import MemberHostPool
from hermes_pool.slot_pool.slot_queue import SlotQueue
from hermes_pool.statistics import PoolStats
from hermes_sandbox.backends import AgentBackend, BackendSandbox, PoolableBackend, SandboxHost, SlotReservation

_LEVELS: tuple[IsolationLevel, ...] = ("none", "bwrap", "container", "container+slot", "gvisor")
_HOW_TO_SHARE: Mapping[str, str] = {
    "local": "isolation none, with the backend's option slots_per_agent above 1",
    "ssh": "isolation none, with the backend's option slots_per_agent above 1",
    "docker": "isolation container+slot",
    "modal": "isolation container+slot",
    "nomad": "isolation container+slot",
}


_NO_COMMON_LEVEL: Final = "choose members that share hosts at the same isolation level"
_NOT_ENFORCED: Final = "leave it out, or choose members that enforce it"


class PoolBackend(AgentBackend):
    """Opens each sandbox in a slot of a host of the member with the most room.

    Everything else is left to the members: what one of them refuses is refused, and the lease of a sandbox names its
    member, so that `sandboxes gc` needs no pool.
    """

    declaration: ClassVar[BackendSpec] = POOL
    Options = PoolBackendOptions
    takes_build = True

    def __init__(self, options: PoolBackendOptions, *, build: Build) -> None:
        super().__init__()
        self.options = options
        labels = [f"{wanted.backend}#{number}" for number, wanted in enumerate(options.members, start=1)]
        self._queue = SlotQueue(options, name="pool", members=labels)
        self.members = [
            Member(wanted.backend, build_member(build, wanted.backend, wanted.options), fleet)
            for wanted, fleet in zip(options.members, self._queue.fleets, strict=True)
        ]
        for member in self.members:
            member.backend.host_pool = MemberHostPool(self._queue, member.fleet)
            member.backend.lease_with(self.lease_store)
        backends = [member.backend for member in self.members]
        self.setup_timeout = max((backend.setup_timeout for backend in backends), default=self.setup_timeout)
        self.patience = max((backend.patience for backend in backends), default=self.patience)
        self._placements: dict[str, _Placement] = {}
        """The placements of the sandboxes that are being made, by their ids."""

    def stats(self) -> PoolStats:
        """Return the current statistics of all members together."""
        return self._queue.stats()

    def lease_with(self, store: LeaseStore) -> None:
        """Write leases to `store` from now on, also those of the members."""
        super().lease_with(store)
        for member in self.members:
            member.backend.lease_with(store)

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether all members share hosts at this level; a pool opens sandboxes in no other way."""
        return all(member.backend.shares(spec) for member in self.members)

    def capacity(self, spec: SandboxSpec) -> int | None:
        """Return the number of slots of all members; for one without an offer so far, what the options allow."""
        del spec
        return sum(member.capacity for member in self.members)

    def with_level(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with the weakest level at which all members share hosts, if it has no level."""
        if spec.isolation is not None:
            return spec
        levels = self._shared_levels(spec)
        return dataclasses.replace(spec, isolation=levels[0]) if levels else super().with_level(spec)

    def _shared_levels(self, spec: SandboxSpec) -> list[IsolationLevel]:
        """Return the levels at which all members share hosts, the weakest first."""
        offered = [set(member.backend.declaration.isolation) for member in self.members]
        levels = [level for level in _LEVELS if all(level in own for own in offered)]
        return [level for level in levels if self.shares(dataclasses.replace(spec, isolation=level))]

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse what a member refuses, and levels at which a member does not share hosts."""
        if not self.members:
            raise SandboxRefusedError(
                "the pool has no backend", hint='backend_options: {"backends": [{"backend": NAME, "options": {…}}]}'
            )
        for member in self.members:
            with name_member(member.label):
                self._require_level(member.backend.declaration, spec)
                self._refuse_as_member(member.backend, spec)
                if not member.backend.shares(spec):
                    name = member.backend.declaration.name
                    raise SandboxRefusedError(
                        f"a sandbox of isolation {spec.isolation!r} has its own host, and a pool needs shared hosts",
                        hint=_HOW_TO_SHARE.get(name, f"see how sandboxes of backend {name!r} share a host"),
                    )

    def _require_level(self, declaration: BackendSpec, spec: SandboxSpec) -> None:
        if spec.isolation not in declaration.isolation:
            levels = self._shared_levels(spec)
            raise SandboxRefusedError(
                f"backend {declaration.name!r} cannot enforce isolation {spec.isolation!r}",
                hint=f"--isolation {' or '.join(levels)}" if levels else _NO_COMMON_LEVEL,
            )

    def _refuse_as_member(self, backend: PoolableBackend, spec: SandboxSpec) -> None:
        """Refuse what a member refuses; replace its hint if it would serve such a sandbox on a host of its own."""
        try:
            backend.refuse(spec)
        except SandboxRefusedError as error:
            if not _serves_alone(backend, spec):
                raise
            others = [level for level in self._shared_levels(spec) if level != spec.isolation]
            hint = f"--isolation {' or '.join(others)}" if others else _NOT_ENFORCED
            raise SandboxRefusedError(error.message, hint=hint) from error

    async def probe(self, spec: SandboxSpec) -> None:
        """Check every member, and set those apart that fail.

        Raises:
            SandboxRefusedError: A member cannot serve such a sandbox.
            BackendError: All members have failed.
        """
        checks = (member.backend.check(spec) for member in self.members)
        found = await asyncio.gather(*checks, return_exceptions=True)
        failed = [(member, error) for member, error in zip(self.members, found, strict=True) if error is not None]
        for member, error in failed:
            if not isinstance(error, BackendError) or not error.retryable:
                with name_member(member.label):
                    raise error
        for member, error in failed:
            member.fleet.set_apart(cast("BackendError", error))
        if len(failed) == len(self.members):
            raise no_member_error({member.label: error for member, error in failed})

    async def make_sandbox(self, spec: SandboxSpec, sandbox_id: str) -> BackendSandbox[Any]:
        """Wait for a slot of a member, and make the sandbox in it; retire the host if the slot cannot be opened."""
        placement = self._placements[sandbox_id] = await self._place(spec, sandbox_id)
        try:
            return await super().make_sandbox(placement.spec, sandbox_id)
        except BaseException as error:
            placement.note_failure(error)
            await placement.seat.release()
            raise
        finally:
            del self._placements[sandbox_id]

    async def _place(self, spec: SandboxSpec, sandbox_id: str) -> _Placement:
        """Take a slot and prepare its member; if that fails, take one of the others, from the same queue position."""
        failures: dict[str, BackendError] = {}
        rank = None
        while len(failures) < len(self.members):
            waiter, seat = await self._take(spec, sandbox_id, failures, rank)
            assert waiter.kind is not None
            member, rank = self.members[waiter.kind.member], waiter.rank
            try:
                return await self._prepare(member, seat, spec)
            except BackendError as error:
                if error.retryable:
                    member.fleet.set_apart(error)
                failures[member.label] = error
            except HermesError as error:
                raise with_member_name(error, member.label) from error
        raise no_member_error(failures)

    async def _take(
        self, spec: SandboxSpec, sandbox_id: str, failures: Mapping[str, BackendError], rank: Rank | None
    ) -> tuple[Waiter, SlotReservation]:
        waiter = self._queue.enter(self.slot_request(spec, sandbox_id), rank)
        offers = Offering(self._queue, self.members, waiter, spec, sandbox_id, failures=failures)
        offering = asyncio.create_task(offers.run())
        try:
            return waiter, await self._queue.take(waiter)
        finally:
            offering.cancel()

    async def _prepare(self, member: Member, seat: SlotReservation, spec: SandboxSpec) -> _Placement:
        """Let the member provide what a sandbox needs besides its host, such as an allocation after one has ended."""
        seconds = self.options.start_timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return _Placement(member, seat, await member.backend.prepare(spec))
        except BaseException as error:
            await seat.release()
            if isinstance(error, TimeoutError) and limit.expired():
                raise member_not_ready_error(member.label, seconds) from error
            raise

    def lease_terms(self, spec: SandboxSpec, sandbox_id: str) -> LeaseTerms:
        """Return the member's terms with the member's name, by which `sandboxes gc` needs no pool."""
        member = self._placements[sandbox_id].member
        return dataclasses.replace(member.backend.lease_terms(spec, sandbox_id), backend=member.name)

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Return the member's host for the sandbox, in the slot that it got."""
        placement = self._placements[sandbox_id]
        with name_member(placement.member.label):
            host = await placement.member.backend.create(spec, sandbox_id)
        host.occupy(placement.seat)
        placement.is_occupied = True
        return host

    def process_limit(self, spec: SandboxSpec, sandbox_id: str) -> int:
        """Return the limit of the task, or that of the member; before a member is chosen, that of the pool."""
        if sandbox_id not in self._placements:
            return super().process_limit(spec, sandbox_id)
        member = self._placements[sandbox_id].member
        return member.backend.process_limit(spec, sandbox_id)

    def sandbox_provenance(self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost) -> dict[str, Any]:
        """Return the record for the rollout, with the member's label."""
        member = self._placements[sandbox_id].member
        return {**super().sandbox_provenance(spec, sandbox_id, host), "member": member.label}

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Let each member remove the sandbox, for callers that do not use the backend that its lease names.

        Raises:
            BackendError: No member could.
        """
        problems = []
        for member in self.members:
            try:
                await member.backend.reclaim(handle)
            except BackendError as error:
                problems.append(f"{member.label}: {error.message}")
        if len(problems) == len(self.members):
            raise BackendError(f"no member of the pool can reclaim {dict(handle)}: {'; '.join(problems)}")

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Let each member find the sandboxes of dead owners.

        Raises:
            BackendError: A member could not look; the others did.
        """
        found: dict[str, None] = {}
        problems: list[BackendError] = []
        for member in self.members:
            try:
                found |= dict.fromkeys(await member.backend.sweep(remove=remove))
            except BackendError as error:
                problems.append(BackendError(f"{member.label}: {error.message}", hint=error.hint))
        if problems:
            raise problems[0]
        return list(found)

    async def aclose(self) -> None:
        """Refuse all waiters, close every sandbox that is still open, then all hosts, then the members."""
        with self._queue.refuse_all():
            async with contextlib.AsyncExitStack() as closing:
                for member in self.members:
                    closing.push_async_callback(member.backend.aclose)
                closing.push_async_callback(self._queue.aclose)
                closing.push_async_callback(super().aclose)


def _serves_alone(backend: PoolableBackend, spec: SandboxSpec) -> bool:
    """Tell whether a backend serves such a sandbox at a level at which it does not share hosts."""
    for level in (level for level in _LEVELS if level in backend.declaration.isolation):
        alone = dataclasses.replace(spec, isolation=level)
        if not backend.shares(alone):
            with contextlib.suppress(SandboxRefusedError):
                backend.refuse(alone)
                return True
    return False


@dataclasses.dataclass(slots=True)
class _Placement:
    """The member and slot of a sandbox that is being made, and its spec."""

    member: Member
    seat: SlotReservation
    spec: SandboxSpec
    is_occupied: bool = False
    """Whether the slot is in use: from then on, failures are those of the host."""

    def note_failure(self, error: BaseException) -> None:
        """Retire the host if a slot could not be opened although its agent works, as on a full disk."""
        is_of_host = isinstance(error, BackendError) and error.retryable and not isinstance(error, SandboxLostError)
        if self.is_occupied and is_of_host:
            self.seat.retire_host()
            self.member.fleet.note_unusable_slot(cast("BackendError", error))
