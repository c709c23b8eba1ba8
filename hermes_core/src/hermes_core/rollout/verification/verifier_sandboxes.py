"""The sandboxes for the verifiers of one rollout, each opened when the first verifier needs it."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Self, cast

from hermes_core.contracts.errors import BackendError, JudgeLostError, SandboxRefusedError, VerifierError
from hermes_core.contracts.sandbox import ChangesTaker, Freezable, Sandbox
from hermes_core.contracts.task import Task
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.task_setup import set_up
from hermes_core.rollout.verification.artifacts import await_answer, copy_artifacts, copy_workspace
from hermes_core.specs import ACCESS_LEVELS, Access, VerifierSpec

OWN_PLACES: Final = ("container", "gvisor")
"""Levels of isolation at which a sandbox has a file system of its own."""

if TYPE_CHECKING:
    from hermes_core.rollout.runtime import Runtime


class VerifierSandboxes:
    """Opens one sandbox for each kind of access; all but the live one are closed at the end.

    What was used goes into the record's provenance under `verification`.
    """

    def __init__(self, runtime: Runtime, live: RolloutContext, record: RolloutRecord, *, patience: int = 1) -> None:
        self._runtime, self._patience = runtime, patience
        self._live = live
        self._task = record.spec.task
        self._stack = AsyncExitStack()
        self._open: dict[tuple[Access, tuple[str, ...]], RolloutContext] = {}
        self._turn = asyncio.Lock()
        self._used: dict[str, Any] = record.provenance.setdefault("verification", {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def access(self, spec: VerifierSpec, least: Access) -> Access:
        """Return a verifier's access: what it declares, or a stricter one that task, run or caller asks for."""
        return max(spec.access, least, least_access(self._runtime, self._task), key=ACCESS_LEVELS.index)

    async def at(self, spec: VerifierSpec, access: Access) -> RolloutContext:
        """Return the context in which a verifier with this access works."""
        key = (access, artifacts_for(self._task, spec, access))
        async with self._turn:
            if key not in self._open:
                self._open[key] = await self._make(spec, *key)
            return self._open[key]

    async def _make(self, spec: VerifierSpec, access: Access, artifacts: tuple[str, ...]) -> RolloutContext:
        live = self._live.sandbox_or_none
        self._used.setdefault("access", access)
        if access == "live":
            return self._live
        note: dict[str, Any] = {"access": access}
        self._used.setdefault("places", []).append(note)
        if live is None or not spec.needs_sandbox:
            return self._context(None)
        wanted = self._runtime.judge_sandbox(self._task, rollout_id=self._live.rollout_id)
        limit = self._patience * self._runtime.verifier_timeout
        with _of_the_judge():
            sandbox = await self._stack.enter_async_context(self._runtime.open_sandbox(wanted))
            note["sandbox"] = dict(sandbox.provenance)
            self._stack.callback(lambda: note.update(sandbox=dict(sandbox.provenance)))
            await set_up(self._task, sandbox)
        if access == "read_only":
            _require_freezable(sandbox)
            await await_answer(copy_workspace(live, sandbox), limit)
            with _of_the_judge():
                await cast("Freezable", sandbox).freeze()
        else:
            # Protected paths are compared in the rollout's own sandbox, whose agent may lie.
            kept = [posixpath.join(sandbox.workspace, path) for path in self._used.get("protected", ())]
            note["artifacts"] = await await_answer(_copy(live, sandbox, artifacts, kept), limit)
            with _of_the_judge():
                # Processes and session of the task's setup are not part of what is judged.
                await sandbox.renew()
        return self._context(sandbox)

    def _context(self, sandbox: Sandbox | None) -> RolloutContext:
        context = RolloutContext(self._runtime, rollout_id=self._live.rollout_id, sandbox=sandbox)
        context.state = self._live.state
        self._stack.callback(context.close)
        return context


def least_access(runtime: Runtime, task: Task) -> Access:
    """Return the least access of the task's verifiers, whatever they declare."""
    asked, asks = task.precautions.access or "live", task.precautions.artifacts is not None
    needed: Access = "fresh" if asks and runtime.commands_are_root(task, of_judge=True) else "live"
    return max(runtime.verifier_access, asked, needed, key=ACCESS_LEVELS.index)


def artifacts_for(task: Task, spec: VerifierSpec, access: Access) -> tuple[str, ...]:
    """Return the paths of the rollout that a verifier of the task gets; raises `VerifierError` if there are none."""
    if access != "fresh":
        return ()
    named = task.precautions.artifacts
    if named is None and not spec.artifacts and spec.access != "fresh" and spec.needs_sandbox:
        raise VerifierError(
            f"verifier {spec.name!r} would judge a fresh sandbox that holds nothing of the rollout",
            hint='name what it judges: "artifacts": ["path"] in the task\'s verifier, or [] if it needs none',
        )
    return spec.artifacts if named is None else named


def require_own_place(level: object, path: str) -> None:
    """Refuse an absolute artifact of a sandbox that shares its file system with others, or with a machine."""
    if level not in OWN_PLACES:
        raise SandboxRefusedError(
            f"artifact {path!r} is outside the workspace, where isolation {level!r} shares files with others",
            hint=f"--isolation {' or '.join(OWN_PLACES)}, or name artifacts in the workspace",
        )


async def _copy(live: Sandbox, sandbox: Sandbox, artifacts: tuple[str, ...], kept: list[str]) -> dict[str, str]:
    done: dict[str, str] = {}
    # First, before anything of the rollout is there; `/` last, because a named path may be part of it.
    for path in sorted((path for path in artifacts if path[0] == "/"), reverse=True):
        require_own_place(live.provenance.get("isolation"), path)
        if not isinstance(sandbox, ChangesTaker):
            refusal = f"artifact {path!r}: backend {sandbox.provenance.get('backend')!r} copies only the workspace"
            raise SandboxRefusedError(refusal, hint="name artifacts in the workspace")
        done[path] = await sandbox.take_changes(live, path, kept=[*kept, *done])
    # Through copied links, one of these could lead anywhere.
    full = {path: PurePosixPath(sandbox.workspace, path) for path in artifacts}
    inner = [path for path in artifacts if not any(full[path].is_relative_to(folder) for folder in done)]
    return done | await copy_artifacts(live, sandbox, inner)


@contextmanager
def _of_the_judge() -> Iterator[None]:
    """Tell failures of the verifier's sandbox from failures of the rollout's."""
    try:
        yield
    except BackendError as error:
        if error.fatal:
            raise
        raise JudgeLostError(error.message, hint=error.hint) from error


def _require_freezable(sandbox: Sandbox) -> None:
    # Checked on the object: a check by the protocol's type is cached for the whole class.
    if not callable(getattr(sandbox, "freeze", None)):
        raise SandboxRefusedError(
            f"the sandboxes of {sandbox.provenance.get('backend')!r} cannot be frozen",
            hint="use a backend that can make a workspace read-only, or access 'fresh'",
        )
