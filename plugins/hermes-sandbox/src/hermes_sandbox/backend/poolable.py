"""What a pool needs from a backend that is to be a member of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hermes_core.contracts.leases import LeaseTerms, LeasingBackend
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.hosts.shared_hosts import Places


@runtime_checkable
class PoolableBackend(LeasingBackend, Protocol):
    """What a leasing backend has besides whose sandboxes can be slots of a pool; `AgentBackend` has all of it.

    The pool opens the sandboxes itself. It asks each member for what serves one (`prepare`, `create`), starts and ends
    the places by the offers of these hosts, and writes the member's lease terms.
    """

    declaration: BackendSpec
    setup_timeout: float
    """Seconds until a started agent must have answered."""
    patience: float
    """Seconds of silence after which an agent that was asked something counts as lost."""
    places: Places
    """Where the sandboxes that it opens itself, as in `check`, get their slots; the pool sets it, and closes it."""

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise `SandboxRefusedError` for the first thing in `spec` that this backend does not give."""
        ...

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes of this kind are slots of shared places."""
        ...

    def process_limit(self, spec: SandboxSpec, sandbox_id: str) -> int:
        """Return how many processes and threads a sandbox may have."""
        ...

    def lease_terms(self, spec: SandboxSpec, sandbox_id: str) -> LeaseTerms:
        """Return what is written to the lease of a sandbox before it is made."""
        ...

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Get what must be there before a sandbox, an allocation, say; returns the spec that then holds.

        Called for each sandbox; may be cancelled.
        """
        ...

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Return a host that has an `offer`, a `SharedHost`, say.

        A pool asks more than once for one sandbox, for its offer and when it has a slot, and may cancel that: nothing
        is made before `admit`.
        """
        ...
