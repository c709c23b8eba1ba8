"""The engine `local`, which runs rollouts in this process. Each worker of a remote engine opens one as well."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import Any, Final, cast, final

from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import BackendError, HermesError
from hermes_core.contracts.leases import Collected, LeaseStore
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.sandbox import BoundedBackend
from hermes_core.contracts.task import Task
from hermes_core.contracts.tool import Tool
from hermes_core.discovery import Registry
from hermes_core.rollout import RolloutSpec, Runtime, merge_sandbox_spec, run_rollout
from hermes_core.specs import ToolSpec
from hermes_runner.config import RunConfig
from hermes_runner.run.closing import closing_error, message_of
from hermes_runner.run.models import choose_parser, open_model
from hermes_runner.tasks.judging import WITHIN_REACH, is_within_reach, judging_problem
from hermes_runner.tasks.sandboxes import check_own_sandbox

_logger = logging.getLogger(__name__)
_NAMED: Final = 5
"""Maximum number of tasks that a message names."""


@final
class LocalEngine:
    """Runs rollouts with one model client and one runtime, created from the run's config."""

    def __init__(self) -> None:
        self.capacity: int | None = None
        """How many of the run's sandboxes the backend has room for, known after `open`; None for any number."""
        self._stack = AsyncExitStack()
        self._runtime: Runtime | None = None
        self._run: Callable[[RolloutSpec], Awaitable[RolloutOutcome]] | None = None
        self._leases: LeaseStore | None = None
        self._collected = Collected()
        self._is_closing = False
        self._troubles: dict[str, Exception] = {}

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Leftovers of dead processes that `open` collected, and from `aclose` on, how many own sandboxes are left."""
        found: dict[str, Any] = {}
        if self._collected.removed or self._collected.failed:
            found["leftovers"] = {"removed": len(self._collected.removed), "failed": len(self._collected.failed)}
        if self._is_closing and self._leases is not None:
            found["sandboxes_left"] = self._leases.count
        return found

    async def open(self, run: EngineRun) -> None:
        """Connect to the model and the backend, so that a problem with either is an error before the run starts."""
        config = RunConfig.parse(run.config, source="the run's config")
        model = open_model(config, api_key=run.api_key, tasks=run.tasks, registry=run.registry)
        self._stack.push_async_callback(self._close, "the model client", model.aclose)
        await model.check()
        runtime = _runtime(config, run, model)
        self._stack.push_async_callback(self._close, f"backend {config.terminal_backend!r}", runtime.aclose)
        runtime.parser  # noqa: B018 - an unknown one is an error before the run starts
        backend, self._leases = runtime.backend, runtime.leases
        if self._leases is not None:
            self._collected = await self._leases.collect(run.registry)
        await check_own_sandbox(runtime, run.tasks)
        self.capacity = backend.capacity(runtime.sandbox_spec) if isinstance(backend, BoundedBackend) else None
        self._runtime = runtime
        self._run = partial(run_rollout, runtime=runtime, model=model, on_turn=run.on_turn)

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Return the tasks that the backend refuses or that cannot be judged; asks it once per distinct sandbox."""
        if self._runtime is None:
            raise _not_open()
        runtime = self._runtime
        wanted = {repr(task.sandbox): task.sandbox for task in tasks if task.sandbox}
        refused = {
            key: error for key, fields in wanted.items() if (error := await _refusal(fields, runtime)) is not None
        }
        found = {task.id: refused.get(repr(task.sandbox)) or judging_problem(task, runtime) for task in tasks}
        _tell_within_reach([task.id for task in tasks if is_within_reach(task, runtime)])
        return {name: error for name, error in found.items() if error is not None}

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Run the rollout in this process."""
        if self._run is None:
            raise _not_open()
        return await self._run(rollout)

    async def aclose(self) -> None:
        """Close the backend with all its sandboxes, and the model's connections."""
        self._is_closing = True
        await self._stack.aclose()
        if self._troubles:
            hints = (getattr(error, "hint", None) for error in self._troubles.values())
            told = (f"{what}: {message_of(error)}" for what, error in self._troubles.items())
            raise BackendError("; ".join(told), hint=next((hint for hint in hints if hint), None))

    async def _close(self, what: str, close: Callable[[], Awaitable[None]]) -> None:
        """Close one part; its error is kept until all parts are closed."""
        if (error := await closing_error(close())) is not None:
            self._troubles[what] = error


async def _refusal(sandbox: Mapping[str, Any], runtime: Runtime) -> HermesError | None:
    try:
        await runtime.backend.check(merge_sandbox_spec(runtime.sandbox_spec, sandbox))
    except HermesError as error:
        return error
    return None


def _tell_within_reach(names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        _logger.warning("tasks %s%s: %s.", ", ".join(names[:_NAMED]), more, WITHIN_REACH)


def _not_open() -> RuntimeError:
    return RuntimeError("the engine was not opened")


def _runtime(config: RunConfig, run: EngineRun, model: ModelClient) -> Runtime:
    return Runtime(
        run.registry,
        backend=config.backend_ref(),
        sandbox=config.sandbox_spec(),
        parser=choose_parser(config, model, run.registry),
        budget=config.result_budget(),
        tool_pool_size=config.tool_pool_size,
        max_sandbox_starts=config.max_sandbox_starts,
        verifier_timeout=config.verifier_timeout,
        verifier_access=config.verifier_access,
        find_tool=cache(partial(_configured_tool, config, run.registry)),
    )


def _configured_tool(config: RunConfig, registry: Registry, name: str) -> tuple[ToolSpec, Tool] | None:
    """Return a tool for which the config has options; the runtime makes all others."""
    if not (options := config.options_of("tool", name)):
        return None
    return cast("ToolSpec", registry.spec("tool", name)), cast("Tool", registry.create("tool", name, options))
