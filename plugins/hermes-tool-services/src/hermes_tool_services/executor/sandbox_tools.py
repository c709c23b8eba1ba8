"""`ToolBackend` on any terminal backend: a sandbox per trajectory, with the installed tools."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, HermesError, UnknownComponentError
from hermes_core.contracts.leases import LeasingBackend
from hermes_core.contracts.model import encode
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec, TerminalBackend
from hermes_core.discovery import Registry, load_plugins
from hermes_core.redaction import redact_text
from hermes_core.rollout import RolloutContext, Runtime, supply_lease_store
from hermes_core.specs import ToolSpec
from hermes_core.tooling import ArgumentsError
from hermes_tool_services import wire
from hermes_tool_services.executor import artifacts
from hermes_tool_services.executor.tool_backend import BatchItem, ExecutionResult
from hermes_tool_services.policy import DEFAULT_TIMEOUT, MARGIN, Policy, timeout_of
from hermes_tools import process_limit_note, shorten_output
from hermes_tools.agent_tools import parse_result, without_policy

ALIASES: Final = {"bash": "terminal", "bash_stateful": "terminal_stateful"}
"""hermes-agent's names of two tools inside the sandbox."""
_STATEFUL: Final = frozenset({"terminal_stateful", "tmux"})
_LONGEST_TEXT: Final = 100_000


@final
class SandboxSlot:
    """One trajectory's sandbox."""

    workspace_dir: Final = artifacts.WORKSPACE

    def __init__(self, number: int, trajectory_id: str, sandbox: Sandbox, context: RolloutContext) -> None:
        self.slot_id = f"slot_{number}"
        self.alloc_id = sandbox.id
        self.trajectory_id: str | None = trajectory_id
        self.sandbox = sandbox
        self.context = context


@final
class SandboxToolBackend:
    """Opens a sandbox for each trajectory and runs installed tools in it.

    Args:
        backend: Opens the sandboxes; a pooled one limits and queues by itself. Closed by its owner, or by `stop` with
            `owns_backend`.
        spec: Requirements on a sandbox, without the policy.
        policy: The policy for commands; it is merged into the spec and checked again before every call.
        registry: The plugins; all that are installed if None.
        default_timeout_s: Timeout in seconds of a call without one.
    """

    def __init__(
        self,
        backend: TerminalBackend,
        *,
        spec: SandboxSpec | None = None,
        policy: Policy | None = None,
        registry: Registry | None = None,
        default_timeout_s: float = DEFAULT_TIMEOUT,
        owns_backend: bool = False,
    ) -> None:
        self.default_timeout_s = default_timeout_s
        self.policy = policy or Policy()
        self._backend = backend
        self._given_spec = spec or SandboxSpec()
        self._given_registry = registry
        self._owns_backend = owns_backend
        self._runtime: Runtime | None = None
        self._numbers = itertools.count()
        self._open: dict[str, SandboxSlot] = {}

    @property
    def spec(self) -> SandboxSpec:
        """The requirements on every sandbox."""
        declaration = getattr(self._backend, "declaration", None)
        return self.policy.apply(self._given_spec, None if declaration is None else declaration.isolation)

    @property
    def slots(self) -> Sequence[SandboxSlot]:
        """The open sandboxes."""
        return tuple(self._open.values())

    async def start(self, registry: Registry | None = None) -> None:
        """Check that the backend meets the requirements; `registry` is used if none was given before."""
        if self._runtime is None:
            registry = self._given_registry or registry
            if registry is None:
                registry = await asyncio.to_thread(load_plugins)
            supply_lease_store(self._backend, registry, type(self._backend).__name__)
            self._runtime = Runtime(registry, sandbox=self.spec)
            await self._backend.check(self.spec)

    async def stop(self, *, purge: bool = False) -> None:
        """Close every sandbox; with `purge` also remove leftovers of killed processes on this backend."""
        results = await asyncio.gather(*(self.release(slot) for slot in self.slots), return_exceptions=True)
        await self.let_go()
        if purge:
            await sweep(self._backend)
        if self._owns_backend:
            await self._backend.aclose()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def let_go(self) -> None:
        """Close the resources other than sandboxes, in any state; no call runs afterwards."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.aclose()

    async def acquire(self, trajectory_id: str) -> SandboxSlot:
        """Open a sandbox; leave nothing behind when cancelled."""
        runtime = self._require_runtime()
        sandbox = await self._backend.open(dataclasses.replace(self.spec, rollout_id=trajectory_id))
        context = RolloutContext(runtime, rollout_id=trajectory_id, sandbox=sandbox)
        slot = SandboxSlot(next(self._numbers), trajectory_id, sandbox, context)
        self._open[slot.slot_id] = slot
        return slot

    async def release(self, slot: SandboxSlot, *, reset_workspace: bool = False) -> None:
        """Close the sandbox completely, even when cancelled. Its files are always deleted, never reused."""
        del reset_workspace
        await run_uncancelled(self._release(slot))

    async def _release(self, slot: SandboxSlot) -> None:
        slot.context.close()
        try:
            if self._runtime is not None and slot.trajectory_id is not None:
                await self._runtime.release(slot.trajectory_id, slot.sandbox.id)
        finally:
            await slot.sandbox.aclose()
            self._open.pop(slot.slot_id, None)

    async def execute_batch(
        self, requests: Sequence[BatchItem], *, timeout_s: float | None = None
    ) -> list[ExecutionResult]:
        """Run several calls: in order within a sandbox, concurrently across sandboxes.

        A lost sandbox fails only its own calls. When cancelled, all calls are ended.
        """
        by_slot: dict[str, list[int]] = {}
        for index, (slot, _, _) in enumerate(requests):
            by_slot.setdefault(slot.slot_id, []).append(index)
        results: dict[int, ExecutionResult] = {}

        async def one_slot(indexes: list[int]) -> None:
            for index in indexes:
                slot, tool, arguments = requests[index]
                results[index] = await self._execute_one(slot, tool, arguments, timeout_s)

        async with asyncio.TaskGroup() as group:
            for indexes in by_slot.values():
                group.create_task(one_slot(indexes))
        return [results[index] for index in range(len(requests))]

    async def _execute_one(
        self, slot: SandboxSlot, tool: str, arguments: Mapping[str, Any], timeout_s: float | None
    ) -> ExecutionResult:
        try:
            return await self.execute(slot, tool, arguments, timeout_s=timeout_s)
        except BackendError as error:
            return ExecutionResult(success=False, error=error.message, metadata={"error_type": type(error).__name__})

    async def execute(
        self,
        slot: SandboxSlot,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run one tool; a command with a repeated `execution_id` is not run again and gets the same answer.

        Raises:
            BackendError: The sandbox is lost.
        """
        name = ALIASES.get(tool, tool)
        given = without_policy(arguments)
        seconds = timeout_of(timeout_s, given.pop("timeout", None), self.default_timeout_s)
        violation = self.policy.violation(slot.sandbox.provenance)
        if violation is not None:
            result = ExecutionResult(success=False, error=violation, metadata={"requires_bwrap": True})
        else:
            result = await self._run_in_time(slot, name, given, seconds, execution_id)
        result.execution_id = execution_id or ""
        result.metadata = {**_about(slot.sandbox, name), **result.metadata}
        return result

    async def _run_in_time(
        self, slot: SandboxSlot, name: str, arguments: dict[str, Any], seconds: float, execution_id: str | None
    ) -> ExecutionResult:
        try:
            async with asyncio.timeout(seconds + MARGIN):
                return await self._run(slot, name, arguments, seconds, execution_id)
        except TimeoutError:
            return _timeout_result(name, seconds)
        except BackendError:
            raise
        except (ArgumentsError, HermesError) as error:
            return ExecutionResult(success=False, error=redact_text(getattr(error, "message", str(error))))
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a tool's failure is the caller's to read
            return ExecutionResult(success=False, error=f"{type(error).__name__}: {redact_text(str(error))}")

    async def _run(
        self, slot: SandboxSlot, name: str, arguments: dict[str, Any], seconds: float, execution_id: str | None
    ) -> ExecutionResult:
        runtime = self._require_runtime()
        _map_paths(arguments, slot.sandbox.workspace)
        if name in {"read_file", "write_file"} and set(arguments) <= {"path", "content"}:
            return await _file(slot.sandbox, name, arguments)
        try:
            spec = cast("ToolSpec", runtime.registry.spec("tool", name))
        except UnknownComponentError:
            return ExecutionResult(success=False, error=f"Unknown tool: {name}")
        if "timeout" in spec.parameters.get("properties", {}):
            arguments["timeout"] = int(seconds)
        prepared = runtime.arguments.prepare(spec, encode(arguments).decode())
        if name == "terminal":
            return await _command(slot.sandbox, prepared, seconds, execution_id)
        answer = await runtime.tool(name).invoke(prepared, slot.context)
        result = parse_result(answer.content)
        why = result.error or answer.error
        return ExecutionResult(result.success and why is None, result.output, why, metadata=result.metadata)

    async def read_artifact(
        self, slot: SandboxSlot, request: wire.ArtifactReadRequestPayload
    ) -> wire.ArtifactReadResponsePayload:
        """Read a file of the workspace."""
        return await artifacts.read_artifact(slot.sandbox, request)

    async def list_artifacts(
        self, slot: SandboxSlot, request: wire.ArtifactListRequestPayload
    ) -> wire.ArtifactListResponsePayload:
        """List a directory of the workspace."""
        return await artifacts.list_artifacts(slot.sandbox, request)

    async def archive_artifacts(
        self, slot: SandboxSlot, request: wire.ArtifactArchiveRequestPayload
    ) -> wire.ArtifactArchiveResponsePayload:
        """Pack a file or a directory of the workspace."""
        return await artifacts.archive_artifacts(slot.sandbox, request)

    def _require_runtime(self) -> Runtime:
        if self._runtime is None:
            raise BackendError("the tool backend has not been started", hint="call `await backend.start()` first")
        return self._runtime


async def sweep(backend: TerminalBackend) -> list[str]:
    """Remove leftovers of killed processes, if the backend can find them, and return their ids."""
    return await backend.sweep(remove=True) if isinstance(backend, LeasingBackend) else []


def _about(sandbox: Sandbox, name: str) -> dict[str, Any]:
    about: dict[str, Any] = {
        "sandboxed": sandbox.provenance.get("isolation", "none") != "none",
        "network_isolated": sandbox.provenance.get("network") == "none",
    }
    return {**about, "stateful": True} if name in _STATEFUL else about


def _map_paths(arguments: dict[str, Any], workspace: str) -> None:
    """Replace `/workspace` by the real path of the workspace."""
    path, workdir = arguments.get("path"), arguments.get("workdir")
    if isinstance(path, str):
        arguments["path"] = artifacts.relative_path(path, workspace)
    if isinstance(workdir, str) and (inner := artifacts.relative_path(workdir, workspace)) != workdir:
        arguments["workdir"] = posixpath.normpath(posixpath.join(workspace, inner))


def _timeout_result(name: str, seconds: float) -> ExecutionResult:
    return ExecutionResult(success=False, error=f"{name} timed out after {seconds:g}s", metadata={"timeout": True})


async def _command(
    sandbox: Sandbox, arguments: Mapping[str, Any], seconds: float, execution_id: str | None
) -> ExecutionResult:
    if arguments.get("background"):
        return ExecutionResult(success=False, error="terminal background execution is not supported in sandbox")
    result = await sandbox.exec(
        arguments["command"],
        timeout=seconds,
        cwd=arguments.get("workdir"),
        merge_stderr=True,
        execution_id=execution_id,
    )
    code = 124 if result.timed_out else result.exit_code
    metadata: dict[str, Any] = {"exit_code": code}
    if code != 0 and (note := process_limit_note(result.output, sandbox)):
        metadata["note"] = note
    if result.timed_out:
        metadata["timeout"] = True
        return ExecutionResult(
            False, shorten_output(result), f"Command timed out after {seconds:g}s", metadata=metadata
        )
    error = None if code == 0 else f"Exit code: {code}"
    return ExecutionResult(code == 0, shorten_output(result), error, metadata=metadata)


async def _file(sandbox: Sandbox, name: str, arguments: Mapping[str, Any]) -> ExecutionResult:
    needed = ("path",) if name == "read_file" else ("path", "content")
    missing = next((key for key in needed if not isinstance(arguments.get(key), str)), None)
    if missing is not None:
        return ExecutionResult(success=False, error=f"{name}: argument {missing!r} is missing or is not text")
    path: str = arguments["path"]
    try:
        if name == "read_file":
            return await _read(sandbox, path)
        data = arguments["content"].encode()
        await sandbox.write_file(path, data)
    except OSError as error:
        return ExecutionResult(success=False, error=f"{path}: {error.strerror or error}")
    return ExecutionResult(True, f"{len(data)} bytes written", metadata={"path": path, "size": len(data)})


async def _read(sandbox: Sandbox, path: str) -> ExecutionResult:
    data = await sandbox.read_file(path, length=4 * _LONGEST_TEXT)
    size = (await sandbox.stat(path)).size
    text = data.decode("utf-8", "replace")
    is_whole = len(text) <= _LONGEST_TEXT and len(data) >= size
    metadata = {"path": path, "size": size, "truncated": not is_whole}
    if is_whole:
        return ExecutionResult(True, text, metadata=metadata)
    shown = text[:_LONGEST_TEXT]
    rest = size - len(shown.encode())
    note = f"\n[OUTPUT TRUNCATED - {rest} of {size} bytes omitted here; read_file with offset and limit goes on]"
    return ExecutionResult(True, shown + note, metadata=metadata)
