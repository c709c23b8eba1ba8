"""The members of a pool, and the check of a backend that is to be one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.contracts.leases import LeasingBackend
from hermes_core.contracts.sandbox import TerminalBackend
from hermes_core.discovery import contract_violations
from hermes_pool.refusals import with_member_name
from hermes_pool.slot_pool.fleet import Fleet
from hermes_sandbox.backends import PoolableBackend

Build = Callable[[str, str, Mapping[str, Any]], Any]
"""Creates a component from its kind, name and options."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One backend of a pool.

    Attributes:
        name: The name of the backend, as in the config.
        backend: The backend that serves the sandboxes.
        fleet: Its hosts.
    """

    name: str
    backend: PoolableBackend
    fleet: Fleet

    @property
    def label(self) -> str:
        """The name of the backend with its number in the config's list, from 1, such as `ssh#2`."""
        return self.fleet.name

    @property
    def capacity(self) -> int:
        """The number of sandboxes that it can serve at a time; before its first offer, what the options allow."""
        known, options = self.fleet.capacity, self.fleet.options
        return options.max_hosts * options.slots_per_host if known is None else known


@contextlib.contextmanager
def name_member(label: str) -> Iterator[None]:
    """Put a member's name before the message of an error raised in the block, if a retry would not help."""
    try:
        yield
    except HermesError as error:
        if error.retryable:
            raise
        raise with_member_name(error, label) from error


def build_member(build: Build, name: str, options: Mapping[str, Any]) -> PoolableBackend:
    """Create the backend of a member, and check that a pool can use it.

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
    return backend  # type: ignore[no-any-return]  # checked above


def _attribute_problems(backend: Any) -> Iterator[str]:
    for name in PoolableBackend.__annotations__:
        if not hasattr(backend, name):
            yield f"it has no attribute {name}"
        elif getattr(backend, name) is None and name != "host_pool":  # which the pool sets
            yield f"its attribute {name} is None"
