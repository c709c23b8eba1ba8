"""The backends of a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.contracts.leases import LeasingBackend
from hermes_core.contracts.sandbox import TerminalBackend
from hermes_core.discovery import contract_violations
from hermes_pool.refusals import named
from hermes_pool.slot_pool.fleet import Fleet
from hermes_sandbox.backends import PoolableBackend

Build = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes a component, of a kind, by its name and options."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One backend of a pool.

    Attributes:
        name: The backend's, as the config has it.
        backend: What serves the sandboxes.
        fleet: Its hosts.
    """

    name: str
    backend: PoolableBackend
    fleet: Fleet

    @property
    def label(self) -> str:
        """Its name, with its place in the config's list."""
        return self.fleet.name

    @property
    def capacity(self) -> int:
        """How many sandboxes it has room for; before its backend was asked, by what the options allow."""
        known, options = self.fleet.capacity, self.fleet.options
        return options.max_hosts * options.slots_per_host if known is None else known


@contextlib.contextmanager
def name_member(label: str) -> Iterator[None]:
    """Put a member's name before the message of an error that no retry would help."""
    try:
        yield
    except HermesError as error:
        if error.retryable:
            raise
        raise named(error, label) from error


def build_member(build: Build, name: str, options: Mapping[str, Any]) -> PoolableBackend:
    """Return a backend that can be a member.

    Raises:
        ConfigError: It lacks something that a pool needs.
    """
    backend = build("backend", name, options)
    lacking = [
        problem
        for contract in (TerminalBackend, LeasingBackend, PoolableBackend)
        for problem in contract_violations(backend, contract)
    ]
    lacking += _attribute_problems(backend)
    if lacking:
        raise ConfigError(
            f"backend {name!r} cannot be a member of a pool: {'; '.join(lacking)}",
            hint="name a backend that implements hermes_sandbox.backends.PoolableBackend, as every AgentBackend does",
        )
    return backend  # type: ignore[no-any-return]  # what it lacks has just been looked for


def _attribute_problems(backend: Any) -> Iterator[str]:
    for name in PoolableBackend.__annotations__:
        if not hasattr(backend, name):
            yield f"it has no attribute {name}"
        elif getattr(backend, name) is None and name != "host_pool":  # which the pool sets
            yield f"its attribute {name} is None"
