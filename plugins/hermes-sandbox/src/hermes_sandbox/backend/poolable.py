"""The contract of a backend that can be a member of a pool."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hermes_core.contracts.leases import LeaseTerms, LeasingBackend
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.hosts.shared_hosts import HostPool


@runtime_checkable
class PoolableBackend(LeasingBackend, Protocol):
    """A leasing backend whose sandboxes can be slots of a pool; `AgentBackend` implements it.

    The pool opens the sandboxes itself. It calls `prepare` and `create` of each member, starts and ends
    hosts by the offers of the results, and writes the member's lease terms.
    """

    declaration: BackendSpec
    setup_timeout: float
    """Seconds in which a started agent must answer."""
    patience: float
    """Seconds of silence during a request after which an agent counts as lost."""
    host_pool: HostPool
    """Gives slots to the sandboxes that the backend opens itself, as in `check`; the pool sets it, and closes it."""

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise `SandboxRefusedError` for the first requirement of `spec` that this backend does not meet."""
        ...

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes of this kind are slots of shared hosts."""
        ...

    def process_limit(self, spec: SandboxSpec, sandbox_id: str) -> int:
        """Return the limit of processes and threads of a sandbox."""
        ...

    def lease_terms(self, spec: SandboxSpec, sandbox_id: str) -> LeaseTerms:
        """Return the terms that are written to the lease of a sandbox before it is made."""
        ...

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Provide what must exist before a sandbox, such as an allocation; returns the spec to use then.

        Called for each sandbox; may be cancelled.
        """
        ...

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Return a host with an `offer`, such as a `SharedHost`.

        A pool calls this more than once for a sandbox, for its offer and when it got a slot, and may cancel it: nothing
        may be made before `admit`.
        """
        ...
