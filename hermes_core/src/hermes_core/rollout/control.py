"""Who is to blame where a rollout cannot be judged: the control is an untouched sandbox of the same task."""

from __future__ import annotations

import copy
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hermes_core.contracts.errors import BackendError, InputsChangedError, TaskError, WorkspaceError
from hermes_core.contracts.rollout import AgentResult
from hermes_core.rollout.context import RolloutContext
from hermes_core.rollout.places import Places
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.world import set_up

if TYPE_CHECKING:
    from hermes_core.rollout.runtime import Runtime

_OF_FILES: Final = frozenset(
    {
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.EMLINK),
        *(errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY, errno.EPERM, errno.EROFS),
    }
)
"""What a file call answers because of what lies in the sandbox; errors of networks have other numbers."""


def is_of_the_workspace(record: RolloutRecord, error: Exception) -> bool:
    """Tell whether a verifier stopped at what it found in the rollout's sandbox.

    It says so itself, or a file call says it. An untouched sandbox then tells whether that is the rollout's doing.
    """
    return "sandbox" in record.provenance and _is_of_files(error)


def _is_of_files(error: BaseException | None) -> bool:
    if error is None or isinstance(error, WorkspaceError):
        return error is not None
    return (isinstance(error, OSError) and error.errno in _OF_FILES) or _is_of_files(error.__cause__)


def is_suspect(record: RolloutRecord, error: BaseException) -> bool:
    """Tell whether the model may have brought an error about, though the infrastructure or a person may have, too.

    It is no suspect as long as it has called no tool, or had no sandbox.
    """
    is_of_either = isinstance(error, BackendError | InputsChangedError)
    return is_of_either and "sandbox" in record.provenance and record.counters["tool_calls_attempted"] > 0


Judge = Callable[[Places, AgentResult], Awaitable[object]]
"""Judges one result with the task's verifier in the given places."""


async def works_untouched(runtime: Runtime, record: RolloutRecord, judge: Judge, *, of_files: bool) -> bool:
    """Judge an untouched sandbox of the rollout's task; tell whether that can be had and the verifier can work in it.

    Without `of_files` it need not work: a sandbox that is not lost is enough. What was used is recorded under `control`
    of the rollout's `verification`.
    """
    control = RolloutRecord(record.spec)
    try:
        await _judge_untouched(runtime, record, control, judge)
        problem = ""
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises, it says how the control ended
        is_lost = isinstance(error, BackendError | TaskError)
        problem = str(error) if is_lost or (of_files and _is_of_files(error)) else ""
    note = control.provenance.get("verification", {}) | {"problem": problem}
    record.provenance.setdefault("verification", {})["control"] = note
    return not problem


async def _judge_untouched(runtime: Runtime, record: RolloutRecord, control: RolloutRecord, judge: Judge) -> None:
    spec = runtime.sandbox_for(record.spec.task, rollout_id=record.spec.rollout_id)
    result = record.agent_result(copy.deepcopy(list(record.conversation.messages)))
    async with runtime.open_sandbox(spec) as sandbox:
        await set_up(record.spec.task, sandbox)
        await sandbox.renew()
        context = RolloutContext(runtime, rollout_id=record.spec.rollout_id, sandbox=sandbox)
        try:
            async with Places(runtime, context, control) as places:
                await judge(places, result)
        finally:
            context.close()
