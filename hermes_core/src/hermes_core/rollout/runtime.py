"""The object that owns everything live: registry, backend, tools, worker threads. Several can exist at once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, ConfigError, HermesError
from hermes_core.contracts.sandbox import QueueingBackend, RootBackend, Sandbox, SandboxSpec, TerminalBackend
from hermes_core.contracts.task import Task
from hermes_core.rollout.leasing import supply_lease_store
from hermes_core.rollout.plugin_calls.plugin_guard import guard_plugin_call
from hermes_core.rollout.plugin_calls.tool_runtime import FindTool, ToolRuntime
from hermes_core.specs import Access, Ref, VerifierSpec
from hermes_core.tooling.budget import ResultBudget

if TYPE_CHECKING:
    from hermes_core.contracts.leases import LeaseStore
    from hermes_core.contracts.parsing import ToolCallParser
    from hermes_core.discovery import Registry

LOCAL_BACKEND = Ref(kind="backend", name="local")


class Runtime(ToolRuntime):
    """Everything that rollouts share, opened and closed as one.

    `backend` and `sandbox` say where rollouts run, `budget` how tool results are shortened. `tool_pool_size` bounds
    the threads of synchronous plugins, `max_sandbox_starts` the sandboxes being created at one time. `verifier_access`
    is the least access that every verifier gets. `process_checkpoint` is a file, of this run only, that names the
    running background processes. `find_tool` is called when a tool is first used, and overrides the plugins.
    Belongs to one event loop.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        backend: Ref = LOCAL_BACKEND,
        sandbox: SandboxSpec | None = None,
        parser: Ref | None = None,
        budget: ResultBudget | None = None,
        tool_pool_size: int = 32,
        max_sandbox_starts: int = 8,
        verifier_timeout: float = 600.0,
        verifier_access: Access = "live",
        process_checkpoint: Path | None = None,
        find_tool: FindTool = lambda _: None,
    ) -> None:
        super().__init__(registry, tool_pool_size=tool_pool_size, find_tool=find_tool)
        self.sandbox_spec = sandbox or SandboxSpec()
        self.backend_ref = backend
        self.parser_ref = parser
        self.budget = budget or ResultBudget()
        self.verifier_timeout = verifier_timeout
        self.verifier_access: Access = verifier_access
        self.process_checkpoint = process_checkpoint
        self._starts = asyncio.Semaphore(max_sandbox_starts)
        self._backend: TerminalBackend | None = None
        self.leases: LeaseStore | None = None
        """Where the backend writes its leases; None before the backend is made, and if it takes no leases."""
        self._parser: ToolCallParser | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the services, the backend with all its sandboxes, and the worker threads.

        If one of them fails, the others are still closed; then the last error is raised.
        """
        self.workers.close()
        async with AsyncExitStack() as stack:
            if self._backend is not None:
                backend, self._backend = self._backend, None
                stack.push_async_callback(backend.aclose)
            for service in self._services.values():
                stack.push_async_callback(guard_plugin_call, service.aclose())

    @property
    def backend(self) -> TerminalBackend:
        """The terminal backend, made on first use and, if it takes leases, with a store for them."""
        if self._backend is None:
            ref = self.backend_ref
            backend = cast("TerminalBackend", self.registry.create("backend", ref.name, ref.options))
            self.leases = supply_lease_store(backend, self.registry, ref.name)
            self._backend = backend
        return self._backend

    @property
    def parser(self) -> ToolCallParser | None:
        """The tool-call parser for servers that return raw text; None when the server parses."""
        if self._parser is None and self.parser_ref is not None:
            self._parser = self.registry.create("parser", self.parser_ref.name, self.parser_ref.options)
        return self._parser

    def verifier(self, name: str, options: Mapping[str, Any]) -> tuple[VerifierSpec, Any]:
        """Make a verifier for one task."""
        spec = cast("VerifierSpec", self.registry.spec("verifier", name))
        return spec, self.registry.create("verifier", name, options)

    def sandbox_for(self, task: Task, *, rollout_id: str) -> SandboxSpec:
        """Return the spec of a task's sandbox: the run's, with the task's fields."""
        return merge_sandbox_spec(self.sandbox_spec, task.sandbox, rollout_id=rollout_id)

    def judge_sandbox(self, task: Task, *, rollout_id: str) -> SandboxSpec:
        """Return the spec of its verifiers' sandboxes: with root, if the task asks for it and the backend can."""
        own = self.sandbox_for(task, rollout_id=rollout_id)
        as_root = dataclasses.replace(own, user="root")
        return as_root if task.precautions.as_root and self._is_root(as_root) and not self._is_root(own) else own

    def commands_are_root(self, task: Task, *, of_judge: bool = False) -> bool:
        """Tell whether the model is root in the task's sandbox, or a verifier in its own, by what the backend says."""
        return self._is_root((self.judge_sandbox if of_judge else self.sandbox_for)(task, rollout_id=""))

    def _is_root(self, spec: SandboxSpec) -> bool:
        backend = self.backend
        return isinstance(backend, RootBackend) and backend.commands_are_root(spec)

    async def _open(self, spec: SandboxSpec) -> Sandbox:
        try:
            return await guard_plugin_call(self.backend.open(spec))
        except HermesError:
            raise
        except Exception as error:  # the plugin boundary: whatever a backend raises, there is no sandbox
            name = self.backend_ref.name
            raise BackendError(f"backend {name!r} raised {type(error).__name__}: {error}") from error

    def _turn(self, spec: SandboxSpec) -> AbstractAsyncContextManager[object]:
        # Waiting for a slot while holding a start turn would block a verifier's sandbox, for which slots are waiting.
        backend = self.backend
        return nullcontext() if isinstance(backend, QueueingBackend) and backend.has_queue(spec) else self._starts

    @asynccontextmanager
    async def open_sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Open a sandbox, and close it when the block ends."""
        async with self._turn(spec):
            sandbox = await self._open(spec)
        try:
            yield sandbox
        finally:
            await run_uncancelled(self._close(sandbox, spec.rollout_id))

    async def _close(self, sandbox: Sandbox, rollout_id: str | None) -> None:
        try:
            if rollout_id is not None:
                await self.release(rollout_id, sandbox.id)
        finally:
            await sandbox.aclose()


def merge_sandbox_spec(spec: SandboxSpec, fields: Mapping[str, Any], *, rollout_id: str | None = None) -> SandboxSpec:
    """Return the run's sandbox spec with a task's fields; an unknown field is a `ConfigError`.

    A field that the task only wishes for does not override the run's value.
    """
    known, wishes = set(SandboxSpec.__dataclass_fields__) - {"rollout_id"}, {*fields.get("wishes", spec.wishes)}
    if unknown := sorted({*fields, *wishes} - known):
        raise ConfigError(f"sandbox has no key {unknown[0]!r}", hint=f"known keys: {', '.join(sorted(known))}")
    settled = {name for name in wishes.difference(spec.wishes) if getattr(spec, name) is not None}
    wanted = {name: value for name, value in fields.items() if name not in settled}
    return dataclasses.replace(spec, **{**wanted, "wishes": tuple(sorted(wishes - settled)), "rollout_id": rollout_id})
