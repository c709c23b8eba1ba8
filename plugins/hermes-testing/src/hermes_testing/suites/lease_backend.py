"""The backend of the suite for lease stores: it creates no sandboxes, and records requests to reclaim."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, SecretStr

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.leases import LeaseStore
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec

NAME = "noted"
REFUSES = "refuses"
"""While a file of this name is in its folder, nothing can be reclaimed."""


@hookimpl
def hermes_backends() -> Iterable[BackendSpec]:
    """Declare the backend."""
    return [
        BackendSpec(
            name=NAME,
            summary="Records requests to reclaim.",
            target="hermes_testing.suites.lease_backend:NotingBackend",
            is_remote=True,
        )
    ]


class NotingOptions(BaseModel):
    """The folder for its records, and a secret that no store may write."""

    folder: Path
    key: SecretStr | None = None


class NotingBackend:
    """Records handles, each with whether the backend was created with its key."""

    Options = NotingOptions

    def __init__(self, options: NotingOptions) -> None:
        self._options = options
        self.leases: LeaseStore | None = None

    def lease_with(self, store: LeaseStore) -> None:
        """Store the options."""
        self.leases = store

    async def check(self, spec: SandboxSpec) -> None:
        """Accept everything."""

    async def open(self, spec: SandboxSpec) -> NoReturn:  # noqa: ARG002 - the contract's signature
        """Refuse: there are no sandboxes here."""
        raise BackendError("the backend of the suite for lease stores creates no sandboxes")

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Record the handle."""
        if (self._options.folder / REFUSES).exists():
            raise BackendError("it refuses, as the test requires")
        with (self._options.folder / "notes").open("a", encoding="utf-8") as notes:
            notes.write(json.dumps({"handle": dict(handle), "has_key": self._options.key is not None}) + "\n")

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find nothing."""
        del remove
        return []

    async def aclose(self) -> None:
        """Close nothing."""
