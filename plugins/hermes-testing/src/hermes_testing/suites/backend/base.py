"""Code shared by the parts of the backend suite."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import pytest_asyncio

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import ExecResult, Sandbox, SandboxSpec, TerminalBackend
from hermes_core.rollout import supply_lease_store
from hermes_core.specs import BackendSpec
from hermes_sandbox import LeaseBook, default_lease_dir
from hermes_sandbox.backends import Lease
from hermes_testing.registries import isolated_registry
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.watching import TooSoon, eventually, exists, runs_inside, with_more_time

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

SECRET = "HERMES_TESTING_API_KEY"  # noqa: S105 - a variable's name
SECRET_VALUE = "sk-never-seen-in-a-sandbox"  # noqa: S105 - made up


class Kept:
    """The backend and the sandbox that the tests of one class share."""

    backend: TerminalBackend | None = None
    sandbox: Sandbox | None = None


class BackendBase(ComponentSuite):
    """Fixtures: a backend, one sandbox of it.

    `sandbox_fields` are the `SandboxSpec` fields of every sandbox; `patience` is the maximum number of seconds for
    something that should happen at once, even on a busy machine. `crowd` is the number of sandboxes opened together,
    more than can start at once.

    The tests of a class run on one event loop and share a backend, because starting sandboxes takes time; asynchronous
    fixtures of a subclass need `loop_scope="class"`.
    """

    kind = "backend"
    loop_scope = "class"
    sandbox_fields: ClassVar[Mapping[str, Any]] = {}
    patience: ClassVar[float] = 60.0
    crowd: ClassVar[int] = 20

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def class_state(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kept]:
        """The shared objects, closed after the last test of the class; leases are in a directory of the class."""
        class_state = Kept()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
            patch.setenv(SECRET, SECRET_VALUE)
            yield class_state
            if class_state.backend is not None:
                await class_state.backend.aclose()

    @pytest_asyncio.fixture(loop_scope="class")
    async def backend(self, class_state: Kept, registry: Registry) -> TerminalBackend:
        """The backend, created by the registry while the caller has a secret in its environment."""
        if class_state.backend is None:
            class_state.backend = self.make(registry)
        return class_state.backend

    @pytest_asyncio.fixture(loop_scope="class")
    async def own_backend(self, class_state: Kept, registry: Registry) -> AsyncIterator[TerminalBackend]:
        """A backend that no other test uses, so the test may close it."""
        del class_state
        backend: TerminalBackend = self.make(registry)
        yield backend
        await backend.aclose()

    @pytest_asyncio.fixture(loop_scope="class")
    async def sandbox(self, backend: TerminalBackend) -> AsyncIterator[Sandbox]:
        """A new sandbox."""
        async with await backend.open(self.ask()) as sandbox:
            yield sandbox

    @pytest_asyncio.fixture(name="shared", loop_scope="class")
    async def shared_sandbox(self, class_state: Kept, backend: TerminalBackend) -> Sandbox:
        """A sandbox shared with other tests, with an empty workspace; tests must not change the session's state."""
        if class_state.sandbox is not None:
            with contextlib.suppress(SandboxLostError):
                await class_state.sandbox.exec(
                    f"cd '{class_state.sandbox.workspace}' && find . ! -name . -prune -exec rm -rf -- {{}} +"
                )
                return class_state.sandbox
            await class_state.sandbox.aclose()
        class_state.sandbox = await backend.open(self.ask())
        return class_state.sandbox

    def lacking(self) -> Mapping[str, str]:
        """Return the capabilities in `lacks`, and those that the isolation level does not promise."""
        if self.level() != "none":
            return self.lacks
        return {"separation": "isolation 'none' separates only directories", **self.lacks}

    def make(self, registry: Registry) -> Any:
        """Create a backend, with a place for its leases if it has none."""
        backend = super().make(registry)
        supply_lease_store(backend, registry, self.component)
        return backend

    def level(self) -> str:
        """Return the isolation of the suite's sandboxes: the requested level, or the backend's default."""
        return self.ask().isolation or _own_level(self.plugin, self.component)

    def ask(self, **fields: Any) -> SandboxSpec:
        """Return the spec of a sandbox with further fields."""
        return SandboxSpec(**{**self.sandbox_fields, **fields})

    async def ask_for(self, backend: TerminalBackend, **fields: Any) -> SandboxSpec:
        """Return such a spec, or skip the test with the reason if it is refused here."""
        spec = self.ask(**fields)
        try:
            await backend.check(spec)
        except SandboxRefusedError as error:
            pytest.skip(f"refused here: {error.message}")
        return spec

    async def vanishes(self, sandbox: Sandbox, token: str) -> bool:
        """Wait shortly; tell whether no process with the token is left in the sandbox."""

        async def is_gone() -> bool:
            return not await runs_inside(sandbox, token)

        return await eventually(is_gone, seconds=self.patience)

    async def runs_out_of_time(self, sandbox: Sandbox, command: str) -> ExecResult:
        """Run a command with a time limit that is long enough for its `touch reached` in the workspace."""

        async def attempt(seconds: float) -> ExecResult:
            result = await sandbox.exec(command, timeout=seconds)
            TooSoon.unless(await exists(sandbox, "reached"), f"it had not come to `touch reached`: {command}")
            return result

        return await with_more_time(attempt)

    async def starts(self, sandbox: Sandbox, token: str) -> bool:
        """Wait shortly; tell whether a process with the token runs in the sandbox."""
        return await eventually(lambda: runs_inside(sandbox, token), seconds=self.patience)


@functools.cache
def _own_level(plugin: str, component: str) -> str:
    spec = isolated_registry(plugin).spec("backend", component)
    assert isinstance(spec, BackendSpec)
    return spec.isolation[0]


async def leases() -> list[Lease]:
    """Return the leases of the open sandboxes, oldest first."""
    found, problems = await asyncio.to_thread(lambda: LeaseBook(default_lease_dir()).read())
    assert problems == []
    return found
