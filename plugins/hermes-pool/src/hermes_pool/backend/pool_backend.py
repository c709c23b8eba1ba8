"""Backend `pool`: one run on several machines or engines, which are other backends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, cast

from hermes_core.contracts.errors import BackendError, ConfigError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.leases import LeaseStore, LeaseTerms
from hermes_core.contracts.sandbox import IsolationLevel, Sandbox, SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool.backend.members import Member
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.backend.sandbox_queue import SandboxQueue, Ticket
from hermes_pool.errors import SlotUnavailableError
from hermes_pool.plugin import POOL
from hermes_pool.refusals import member_not_ready, too_late
from hermes_pool.statistics import PoolStats
from hermes_sandbox.backends import AgentBackend, BackendSandbox, SandboxHost

_LEVELS: tuple[IsolationLevel, ...] = ("none", "bwrap", "container", "container+slot", "gvisor")
_HOW_TO_SHARE: Mapping[str, str] = {
    "local": "isolation none, with the backend's option slots_per_agent above 1",
    "ssh": "isolation none, with the backend's option slots_per_agent above 1",
    "docker": "isolation container+slot",
    "modal": "isolation container+slot",
    "nomad": "isolation container+slot",
}


class PoolBackend(AgentBackend):
    """Sandboxes that are slots of other backends' places, each on the member that has most room.

    Everything but the choice is the members': what they refuse is refused, and a sandbox's lease is one of the member's
    own, so that collecting what was left needs no pool.
    """

    declaration: ClassVar[BackendSpec] = POOL
    Options = PoolBackendOptions
    takes_build = True

    def __init__(self, options: PoolBackendOptions, *, build: Callable[[str, str, Mapping[str, Any]], Any]) -> None:
        super().__init__()
        self.options = options
        of_each = options.of_each()
        self.members = [
            Member(
                wanted.backend,
                number,
                _member_backend(build, wanted.backend, wanted.options),
                of_each,
                has_others=len(options.members) > 1,
            )
            for number, wanted in enumerate(options.members, start=1)
        ]
        backends = [member.backend for member in self.members]
        self.setup_timeout = max((backend.setup_timeout for backend in backends), default=self.setup_timeout)
        self.patience = max((backend.patience for backend in backends), default=self.patience)
        self._queue = SandboxQueue(of_each, self.members, name="pool")
        self._tickets: dict[str, Ticket] = {}

    def stats(self) -> PoolStats:
        """Return the numbers of all members together."""
        return self._queue.stats()

    def shares(self, spec: SandboxSpec) -> bool:
        """Slots are all that there is."""
        return all(member.backend.shares(spec) for member in self.members)

    def capacity(self, spec: SandboxSpec) -> int | None:
        """Return what the members come to, those that cannot be reached now with what the options allow."""
        del spec
        return sum(member.capacity for member in self.members)

    def with_level(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with the weakest level that all members share at, where it leaves that to the backend."""
        if spec.isolation is not None:
            return spec
        levels = (dataclasses.replace(spec, isolation=level) for level in _LEVELS)
        return next((levelled for levelled in levels if self._is_shared(levelled)), super().with_level(spec))

    def _is_shared(self, spec: SandboxSpec) -> bool:
        offered = all(spec.isolation in member.backend.declaration.isolation for member in self.members)
        return offered and self.shares(spec)

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse what a member refuses, or gives to one sandbox alone."""
        if not self.members:
            raise SandboxRefusedError(
                "the pool has no backend", hint='backend_options: {"backends": [{"backend": NAME, "options": {…}}]}'
            )
        for member in self.members:
            with _naming(member):
                member.backend.refuse(spec)
                if not member.backend.shares(spec):
                    name = member.backend.declaration.name
                    raise SandboxRefusedError(
                        f"a sandbox of isolation {spec.isolation!r} has a place to itself, which no pool can share out",
                        hint=_HOW_TO_SHARE.get(name, f"see how sandboxes of backend {name!r} share a place"),
                    )

    async def probe(self, spec: SandboxSpec) -> None:
        """Let every member try; one that cannot be reached is set apart, if another can.

        Raises:
            SandboxRefusedError: A member cannot give it.
            BackendError: No member can be reached.
        """
        for member in self.members:
            member.backend.lease_with(self.leases)
        checks = (member.backend.check(spec) for member in self.members)
        found = await asyncio.gather(*checks, return_exceptions=True)
        failed = [(member, error) for member, error in zip(self.members, found, strict=True) if error is not None]
        for member, error in failed:
            if not isinstance(error, BackendError) or not error.retryable:
                with _naming(member):
                    raise error
        for member, error in failed:
            self._queue.set_apart(member, cast("BackendError", error))
        if len(failed) == len(self.members):
            raise self._all_failed()

    async def make_sandbox(self, spec: SandboxSpec, sandbox_id: str) -> BackendSandbox[Any]:
        """Make it on the first member that has room; where that one fails, on the next."""
        loop, seconds = asyncio.get_running_loop(), self.options.acquire_timeout
        deadline = loop.time() + seconds
        tries = 0
        while True:
            began = loop.time()
            ticket = await self._queue.enter(spec.rollout_id, seconds=seconds, first=tries > 0)
            # What passed in a queue that moves is not the time of this sandbox.
            deadline += loop.time() - began
            try:
                return await self._make_on(ticket, spec, sandbox_id, deadline)
            except BackendError as error:
                if not _is_of_the_member(ticket.member, error):
                    raise
                self._queue.set_apart(ticket.member, error)
                if loop.time() >= deadline:
                    raise too_late(self.stats(), seconds, error, what="a member cannot be used") from error
                tries += 1
                if tries >= self.options.max_failures * len(self.members):
                    raise self._all_failed() from error

    async def _make_on(
        self, ticket: Ticket, spec: SandboxSpec, sandbox_id: str, deadline: float
    ) -> BackendSandbox[Any]:
        pool = ticket.member.pool
        self._tickets[sandbox_id] = ticket
        pool.deadlines[sandbox_id] = deadline
        try:
            prepared = await self._prepare_member(ticket.member, spec, deadline)
            return await super().make_sandbox(prepared, sandbox_id)
        except BaseException:
            self._give_back(sandbox_id)
            raise
        finally:
            del pool.deadlines[sandbox_id]

    async def _prepare_member(self, member: Member, spec: SandboxSpec, deadline: float) -> SandboxSpec:
        """Let the member get what it needs; where there are others, half of the time is left for those."""
        member.backend.lease_with(self.leases)
        now = asyncio.get_running_loop().time()
        seconds = (deadline - now) / (1 if len(self.members) == 1 else 2)
        try:
            async with asyncio.timeout(max(0.01, seconds)):
                return await member.backend.prepare(spec)
        except TimeoutError as error:
            raise member_not_ready(member.label, seconds) from error

    def _give_back(self, sandbox_id: str) -> None:
        ticket = self._tickets.pop(sandbox_id, None)
        if ticket is not None:
            ticket.give_back()

    def _all_failed(self) -> BackendError:
        troubles = [(member.label, member.trouble) for member in self.members if member.trouble is not None]
        told = "; ".join(f"{label}: {trouble.message}" for label, trouble in troubles)
        hints = (trouble.hint for _, trouble in troubles if trouble.hint)
        return BackendError(
            f"no member of the pool can be used: {told}",
            hint=next(hints, "hermes-core doctor tells what each backend lacks"),
        )

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the handle of the member that the sandbox is on."""
        return self._member(sandbox_id).backend.handle(spec, sandbox_id)

    def _member(self, sandbox_id: str) -> Member:
        return self._tickets[sandbox_id].member

    def lease_terms(self, spec: SandboxSpec, sandbox_id: str) -> LeaseTerms:
        """Return the terms with the member's name and options: `sandboxes gc` needs no pool to collect it."""
        member = self._member(sandbox_id)
        options = getattr(member.backend, "options", None)
        return dataclasses.replace(super().lease_terms(spec, sandbox_id), backend=member.name, options=options)

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Let the member make its share of a place."""
        return await self._member(sandbox_id).backend.create(spec, sandbox_id)

    def make_release(self, host: SandboxHost, leases: LeaseStore) -> Callable[[Sandbox], Awaitable[None]]:
        """Return what ends a sandbox, and then gives its slot back to the queue."""
        leave = super().make_release(host, leases)

        async def leave_and_give_back(sandbox: Sandbox) -> None:
            try:
                await leave(sandbox)
            finally:
                self._give_back(sandbox.id)

        return leave_and_give_back

    def process_limit(self, spec: SandboxSpec, sandbox_id: str) -> int:
        """Return the task's number, or the member's."""
        return spec.pids or self._member(sandbox_id).backend.pids

    def sandbox_provenance(self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost) -> dict[str, Any]:
        """Return what is recorded with the rollout, with the member's label."""
        return {**super().sandbox_provenance(spec, sandbox_id, host), "member": self._member(sandbox_id).label}

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Let each member remove it, for callers that do not go by the lease's backend.

        Raises:
            BackendError: None could.
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
        """Let each member find what dead owners left.

        Raises:
            BackendError: A member could not be asked; the others were.
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
        """Refuse those who wait, close every sandbox that is still open, then the members with their places."""
        with contextlib.ExitStack() as closed:
            closed.enter_context(self._queue.refuse_all())
            for member in self.members:
                closed.enter_context(member.pool.refuse_all())
            sandboxes = await asyncio.gather(super().aclose(), return_exceptions=True)
            backends = (member.backend.aclose() for member in self.members)
            results = [*sandboxes, *await asyncio.gather(*backends, return_exceptions=True)]
        for result in results:
            if isinstance(result, BaseException):
                raise result


def _member_backend(build: Callable[[str, str, Mapping[str, Any]], Any], name: str, options: Mapping[str, Any]) -> Any:
    backend = build("backend", name, options)
    if not isinstance(backend, AgentBackend):
        raise ConfigError(f"backend {name!r} cannot be a member of a pool: it has no slots")
    return backend


def _is_of_the_member(member: Member, error: BackendError) -> bool:
    """Tell whether another member may do better: none of this one's places works."""
    # A host that was lost meanwhile says nothing of the next one.
    if not error.retryable or isinstance(error, SlotUnavailableError | SandboxLostError):
        return False
    return not member.pool.stats().hosts["ready"]


@contextlib.contextmanager
def _naming(member: Member) -> Iterator[None]:
    """Put a member's name before what it refuses."""
    try:
        yield
    except SandboxRefusedError as error:
        raise SandboxRefusedError(f"member {member.label} of the pool: {error.message}", hint=error.hint) from error
