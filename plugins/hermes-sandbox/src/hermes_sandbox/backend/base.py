"""The base class of backends: everything except the isolation itself."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, NoPythonError, SandboxRefusedError
from hermes_core.contracts.leases import LeaseStore, LeaseTerms
from hermes_core.contracts.sandbox import IsolationLevel, RootBackend, Sandbox, SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.agent.seccomp import FAMILIES
from hermes_sandbox.backend.agent_sandbox import AgentSandbox
from hermes_sandbox.backend.backend_sandbox import BackendSandbox
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.hosts.recycled_host import RecycledHost
from hermes_sandbox.backend.hosts.shared_hosts import HostPool, SharedHostPool
from hermes_sandbox.backend.options import ENVIRONMENT, PROCESSES, ROOT, UNBOUNDED
from hermes_sandbox.backend.shell_opening import shell_sandbox
from hermes_sandbox.backend.shell_sandbox import ShellSandbox, refuse_without_agent
from hermes_sandbox.egress.attach import NO_PROXY, attach, proxy_for, refuse_hosts
from hermes_sandbox.leases.book import Lease
from hermes_sandbox.leases.file_store import FileLeaseStore
from hermes_sandbox.protocol.fd_limits import system_error
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest
from hermes_sandbox.protocol.validation import check_variables
from hermes_sandbox.wishes import LIMITS, Wishes

if TYPE_CHECKING:
    from hermes_sandbox.backend.options import AgentOptions
    from hermes_sandbox.egress.resolver import Resolve

Recycled = TypeVar("Recycled", bound=RecycledHost)
_log = logging.getLogger(__name__)
_UNBOUNDED_HINT: Final = "Run as a user other than root, or where control groups with the controller pids can be made"
_PLAIN_HINT: Final = "Name an image with Python 3.8 or newer, whose agent can bound them"


class _LeftToItsLease(asyncio.CancelledError):
    """Cancelled, but what was made cannot be removed: its lease stays, for `sandboxes gc`."""


class AgentBackend(ABC):
    """A backend whose sandboxes are served by an agent.

    A subclass says what it can enforce in `declaration` and implements `create`; `open`, sessions, files, renewal,
    leases, refusals and clean-up after cancellation are inherited. Declare nothing that is not enforced: a run that
    requires more does not start.
    """

    declaration: ClassVar[BackendSpec]
    setup_timeout: float = 30.0
    """Seconds in which a started agent must answer."""
    patience: float = 20.0
    """Seconds of silence during a request after which an agent counts as lost."""

    concurrent_starts: int = 16
    """Agents that may be starting at once; more would only make each of them late."""

    pids: int = PROCESSES
    """Limit of processes and threads of a sandbox whose task names none."""

    leases: LeaseStore | None = None
    """The store that a subclass comes with, or that `lease_with` got, as from every run; None if there is none."""

    def __init__(self, options: AgentOptions | None = None) -> None:
        if options is not None:
            self.setup_timeout, self.patience = options.setup_timeout, options.patience
            self.concurrent_starts = options.concurrent_starts
            self.pids = options.pids
        self.starts = asyncio.Semaphore(self.concurrent_starts)
        """Bounds concurrent starts; a subclass whose `create` is work for an engine acquires it too."""
        self.resolve: Resolve | None = None
        """Resolves the host names that a sandbox with an allowlist requests; None: as the system does."""
        self.host_pool: HostPool = SharedHostPool()
        """Gives sandboxes their seats in shared hosts; a slot pool may replace it before the first one is opened."""
        self._own_leases = FileLeaseStore()
        self._open: dict[str, BackendSandbox[Any]] = {}
        self._said_unbounded = False
        self._said_lacks: set[str] = set()
        self._wishes = Wishes(self.declaration.name)

    @property
    def lease_store(self) -> LeaseStore:
        """Where leases are written: in `leases`, or without it in files in the user's state directory."""
        return self._own_leases if self.leases is None else self.leases

    def lease_with(self, store: LeaseStore) -> None:
        """Write leases to `store` from now on; a pool's members write theirs where the pool does."""
        self.leases = store

    @property
    def lease_dir(self) -> Path | None:
        """Directory of the leases; None for the user's own, and if leases are not files."""
        return self.lease_store.directory if isinstance(self.lease_store, FileLeaseStore) else None

    @lease_dir.setter
    def lease_dir(self, directory: Path | None) -> None:
        self.lease_with(FileLeaseStore.at(directory))

    @abstractmethod
    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Make the host, marked so that `sandbox_id` finds it again. Not interrupted by cancellation.

        On an exception, `create` removes what it made. If `shares` is true for the spec, it makes nothing, and may
        be called more than once and cancelled, see `PoolableBackend`.
        """

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes of this kind are slots of shared hosts, so that a slot pool can bound them."""
        del spec
        return False

    def has_queue(self, spec: SandboxSpec) -> bool:
        """Tell whether opening such a sandbox waits for a slot, and so must hold no start slot meanwhile."""
        return self.shares(self.with_level(spec))

    def capacity(self, spec: SandboxSpec) -> int | None:
        """Return the number of slots of all its hosts, known after the first request; None if nothing is shared."""
        return self.host_pool.capacity if self.shares(self.with_level(spec)) else None

    def has_user(self, spec: SandboxSpec) -> bool:
        """Tell whether commands can run as the named user; by default only as root, if they run as root anyway."""
        return spec.user in ROOT and isinstance(self, RootBackend) and self.commands_are_root(spec)

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return what `reclaim` needs to find the host, known before it exists; written to the lease."""
        del spec
        return {"sandbox_id": sandbox_id}

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove the host that a killed process left behind; nothing to remove is success."""
        raise BackendError(f"backend {self.declaration.name!r} cannot reclaim {dict(handle)}; remove it by hand")

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find sandboxes of dead owners by their marks, leased or not; remove them, and return their ids."""
        del remove
        return []

    async def probe(self, spec: SandboxSpec) -> None:
        """Try what `spec` needs, once a run; raise `SandboxRefusedError` or `BackendError` if it does not work."""
        del spec

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise `SandboxRefusedError` for the first requirement of `spec` that this backend does not declare."""
        known = self.declaration
        if spec.isolation not in known.isolation:
            raise self._refusal(f"isolation {spec.isolation!r}", f"--isolation {' or '.join(known.isolation)}")
        if spec.network != "full" and spec.network not in known.networks:
            raise self._refusal(
                f"network {spec.network!r}", f"--network {' or '.join(sorted({'full', *known.networks}))}"
            )
        if spec.image is not None and not known.images:
            raise self._refusal(f"image {spec.image!r}", "leave image out, or choose a backend that runs images")
        for field, limit in LIMITS.items():
            if getattr(spec, field) is not None and limit not in known.limits:
                offered = ", ".join(sorted(known.limits)) or "none"
                raise self._refusal(f"limit {field}", f"limits it can enforce: {offered}")
        if spec.user is not None and not self.has_user(spec):
            raise self._refusal(f"user {spec.user!r}", "leave user out, or choose a backend that has users: docker")
        if spec.pids is not None and spec.pids <= 0:
            raise SandboxRefusedError(f"limit pids: expected a number above 0, got {spec.pids}")
        refuse_hosts(spec)
        check_variables(spec.env)

    def _refusal(self, wanted: str, hint: str) -> SandboxRefusedError:
        return SandboxRefusedError(f"backend {self.declaration.name!r} cannot enforce {wanted}", hint=hint)

    def with_level(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with a level, if it leaves that to the backend."""
        if spec.isolation is not None:
            return spec
        return dataclasses.replace(spec, isolation=cast("IsolationLevel", self.declaration.isolation[0]))

    async def check(self, spec: SandboxSpec) -> None:
        """Raise unless a sandbox of `spec` works here, by trying one."""
        await self._wishes.grant(self.with_level(spec), self._check)

    async def _check(self, spec: SandboxSpec) -> None:
        self.refuse(spec)
        await self.probe(spec)

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Provide what must exist before the lease is written, such as an allocation; returns the spec to use then.

        Called before every sandbox, by `open` and by a pool with this backend as a member. May be cancelled.
        """
        return spec

    async def open(self, spec: SandboxSpec) -> BackendSandbox[Any]:
        """Create a sandbox; leave nothing behind when cancelled or failing."""
        return await self._wishes.grant(self.with_level(spec), self._open_as_is)

    async def _open_as_is(self, spec: SandboxSpec) -> BackendSandbox[Any]:
        self.refuse(spec)
        spec = await self.prepare(spec)
        sandbox_id = uuid.uuid4().hex[:16]
        opening = asyncio.ensure_future(self.make_sandbox(spec, sandbox_id))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.cancel()
            await run_uncancelled(self._undo(opening))
            raise

    async def _undo(self, opening: asyncio.Task[BackendSandbox[Any]]) -> None:
        await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().aclose()

    async def make_sandbox(self, spec: SandboxSpec, sandbox_id: str) -> BackendSandbox[Any]:
        """Take a lease, create the host and start the agent in it; a pool chooses the member here."""
        leases = self.lease_store
        try:
            await leases.take(self.lease_terms(spec, sandbox_id))
            host = await self._create(spec, sandbox_id)
        except _LeftToItsLease:
            raise
        except BaseException:
            await run_uncancelled(leases.give_up(sandbox_id))
            raise
        sandbox = await self._start(spec, sandbox_id, host, leases)
        self._open[sandbox_id] = sandbox
        return sandbox

    async def _start(
        self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost, leases: LeaseStore
    ) -> BackendSandbox[Any]:
        sandbox: BackendSandbox[Any]
        why = host.without_python
        if why is None:
            sandbox = self._assemble(spec, sandbox_id, host, leases)
            try:
                await sandbox.start()
                self._require_bound(spec, sandbox.process_bound)
                self._tell_lacks(spec, host)
            except NoPythonError as error:
                if not host.serves_plain:
                    await sandbox.aclose()
                    raise
                why = error.message
            except BaseException:
                await sandbox.aclose()
                raise
            else:
                return sandbox
        sandbox = self._assemble_plain(spec, sandbox_id, host, leases, why)
        try:
            refuse_without_agent(spec, why)
            async with self.starts:
                await sandbox.start()
            self._require_bound(spec, sandbox.process_bound, _PLAIN_HINT)
        except BaseException:
            await sandbox.aclose()
            raise
        return sandbox

    def process_limit(self, spec: SandboxSpec, sandbox_id: str) -> int:
        """Return the limit of processes and threads of a sandbox: the task's, or the backend's."""
        del sandbox_id
        return spec.pids or self.pids

    def _require_bound(self, spec: SandboxSpec, found: str | None, hint: str = _UNBOUNDED_HINT) -> None:
        """Refuse a sandbox with unbounded processes if its task asks for a bound; otherwise log that, once."""
        if found is None or not found.startswith(UNBOUNDED):
            return
        why = found.removeprefix(UNBOUNDED)
        if spec.isolation == "none" and "bwrap" in self.declaration.isolation:
            hint = f"{hint}; or choose --isolation bwrap"
        if spec.pids is not None:
            raise SandboxRefusedError(f"limit pids cannot be enforced here: {why}", hint=hint)
        if not self._said_unbounded:
            self._said_unbounded = True
            _log.warning(
                "backend %r: sandboxes have no bound on processes (%s); one that forks without end takes its machine "
                "along. %s.",
                self.declaration.name,
                why,
                hint,
            )

    def _tell_lacks(self, spec: SandboxSpec, host: SandboxHost) -> None:
        """Log, once for each word, what sandboxes of this kind share with others."""
        others = " or ".join(level for level in self.declaration.isolation if level != spec.isolation)
        for word, why in host.lacks.items():
            if word not in self._said_lacks:
                self._said_lacks.add(word)
                text = "backend %r lacks %s at isolation %r: %s. Where tasks need their own: --isolation %s."
                _log.warning(text, self.declaration.name, word, spec.isolation, why, others)

    def lease_terms(self, spec: SandboxSpec, sandbox_id: str) -> LeaseTerms:
        """Return the terms that are written to the lease of a sandbox before it is made."""
        return LeaseTerms(
            sandbox_id=sandbox_id,
            backend=self.declaration.name,
            handle=self.handle(spec, sandbox_id),
            lifetime=spec.lifetime,
            rollout_id=spec.rollout_id,
            options=getattr(self, "options", None),
        )

    def lease_for(self, spec: SandboxSpec, sandbox_id: str) -> Lease:
        """Return the marks by which a host is known to belong to this process, if it can carry marks."""
        return Lease.of_terms(self.lease_terms(spec, sandbox_id))

    async def make_shared_host(self, spec: SandboxSpec, make: Callable[[str], Awaitable[Recycled]]) -> Recycled:
        """Make a host for many slots, by an id, with its own lease, which is there before the slots and after them."""
        leases = self.lease_store
        host_id = uuid.uuid4().hex[:16]
        await leases.take(self.lease_terms(spec, host_id))
        try:
            host = await make(host_id)
        except BaseException:
            await run_uncancelled(leases.give_up(host_id))
            raise
        host.release = lambda: leases.give_up(host_id)
        return host

    async def _create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        creation = asyncio.ensure_future(self.create(spec, sandbox_id))
        try:
            return await asyncio.shield(creation)
        except asyncio.CancelledError:
            try:
                await run_uncancelled(_destroy_when_made(creation))
            except BaseException as error:
                # Whatever it was, the host may still exist; a second cancellation gets the error as its cause.
                why = error.__cause__ if isinstance(error, asyncio.CancelledError) else error
                if why is None:
                    raise
                _log.warning("sandbox %s was cancelled, and cannot be removed: %s", sandbox_id, why)
                raise _LeftToItsLease from why
            raise

    def slot_request(
        self, spec: SandboxSpec, sandbox_id: str, environment: Mapping[str, str] = ENVIRONMENT
    ) -> SlotRequest:
        """Return what a sandbox requires of its agent."""
        return SlotRequest(
            spec=spec,
            sandbox_id=sandbox_id,
            environment=environment,
            setup_timeout=self.setup_timeout,
            patience=self.patience,
            processes=self.process_limit(spec, sandbox_id),
        )

    def _assemble(self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost, leases: LeaseStore) -> AgentSandbox:
        egress = proxy_for(spec, self.resolve)
        environment = ENVIRONMENT if egress is None else {**ENVIRONMENT, **NO_PROXY}
        request = self.slot_request(spec, sandbox_id, environment)
        leave = self.make_release(host, leases)

        async def connect(previous: AgentSlot | None) -> AgentSlot:
            if egress is not None:
                await egress.aclose()
            try:
                # Not while holding a start slot: waiting sandboxes would block renewals of those that have a slot.
                if previous is None:
                    await host.admit(request)
                async with self.starts:
                    slot = await host.serve(request, previous)
                    return slot if egress is None else await attach(egress, slot, keep=spec.env)
            except OSError as error:
                raise system_error("the agent cannot be started", error) from error

        async def release(sandbox: Sandbox) -> None:
            if egress is not None:
                await egress.aclose()
            await leave(sandbox)

        return AgentSandbox(
            sandbox_id=sandbox_id,
            host=host,
            spec=spec,
            provenance=self.sandbox_provenance(spec, sandbox_id, host),
            connect=connect,
            release=release,
            egress_log=None if egress is None else egress.log,
        )

    def _assemble_plain(
        self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost, leases: LeaseStore, why: str
    ) -> ShellSandbox:
        request = self.slot_request(spec, sandbox_id)
        provenance = self.sandbox_provenance(spec, sandbox_id, host)
        return shell_sandbox(request, host, why=why, provenance=provenance, release=self.make_release(host, leases))

    def make_release(self, host: SandboxHost, leases: LeaseStore) -> Callable[[Sandbox], Awaitable[None]]:
        """Return the function that ends a closed sandbox: its processes, its host, and last its lease."""

        async def leave(sandbox: Sandbox) -> None:
            try:
                await host.stop_all()
            finally:
                await host.destroy()
            # The lease is removed last, and stays if something failed, for `sandboxes gc`.
            await leases.give_up(sandbox.id)
            self._open.pop(sandbox.id, None)

        return leave

    def sandbox_provenance(self, spec: SandboxSpec, sandbox_id: str, host: SandboxHost) -> dict[str, Any]:
        """Return the record for the rollout: backend, levels, limits, and the host's additions."""
        found = dict(host.provenance)
        if omitted := self._wishes.omissions(spec):
            found["limits"] = {**found.get("limits", {}), **omitted}
        return {
            "backend": self.declaration.name,
            "isolation": spec.isolation,
            "network": spec.network,
            # If these cannot be enforced, no sandbox is opened.
            **({} if spec.network == "full" else {"socket_families": list(FAMILIES)}),
            "sandbox_id": sandbox_id,
            **({"lacks": dict(host.lacks)} if host.lacks else {}),
            **found,
        }

    async def aclose(self) -> None:
        """Close every open sandbox, then their shared hosts."""
        # Reject waiters first; otherwise the slots freed by closing would admit them.
        with self.host_pool.refuse_all():
            results = await asyncio.gather(
                *(sandbox.aclose() for sandbox in list(self._open.values())), return_exceptions=True
            )
            await self.host_pool.aclose()
        for result in results:
            if isinstance(result, BaseException):
                raise result


async def _destroy_when_made(creation: asyncio.Task[SandboxHost]) -> None:
    try:
        host = await creation
    except Exception:  # noqa: BLE001 - the failed start itself: then there is nothing to destroy
        return
    try:
        await host.stop_all()
    finally:
        await host.destroy()
