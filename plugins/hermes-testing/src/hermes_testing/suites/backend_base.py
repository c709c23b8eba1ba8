"""What the parts of the backend suite share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import pytest_asyncio

from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.watching import eventually, runs_inside

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

SECRET = "HERMES_TESTING_API_KEY"  # noqa: S105 - a variable's name
SECRET_VALUE = "sk-never-seen-in-a-sandbox"  # noqa: S105 - made up


class BackendBase(ComponentSuite):
    """Fixtures: a backend, one sandbox of it.

    `sandbox_fields` are the `SandboxSpec` fields every sandbox gets; `patience` is how many seconds something that
    should happen at once may take.
    """

    kind = "backend"
    sandbox_fields: ClassVar[Mapping[str, Any]] = {}
    patience: ClassVar[float] = 10.0

    @pytest_asyncio.fixture
    async def backend(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TerminalBackend]:
        """The backend, made by the registry while the caller has a secret in its environment."""
        monkeypatch.setenv(SECRET, SECRET_VALUE)
        backend: TerminalBackend = self.make(registry)
        yield backend
        await backend.aclose()

    @pytest_asyncio.fixture
    async def sandbox(self, backend: TerminalBackend) -> AsyncIterator[Sandbox]:
        """A new sandbox."""
        async with await backend.open(self.ask()) as sandbox:
            yield sandbox

    def ask(self, **fields: Any) -> SandboxSpec:
        """Return the spec of a sandbox with further fields."""
        return SandboxSpec(**{**self.sandbox_fields, **fields})

    async def vanishes(self, sandbox: Sandbox, token: str) -> bool:
        """Tell whether no process with the token is left in the sandbox, after a moment at most."""

        async def gone() -> bool:
            return not await runs_inside(sandbox, token)

        return await eventually(gone, seconds=self.patience)
