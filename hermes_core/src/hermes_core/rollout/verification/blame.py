"""Whom to blame if a rollout cannot be judged, tested with a control: an untouched sandbox of the same task."""

from __future__ import annotations

import copy
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hermes_core.contracts.errors import (
    BackendError,
    HermesError,
    JudgeLostError,
    NoVerdictError,
    VerifierTimeoutError,
    WorkspaceError,
)
from hermes_core.contracts.rollout import AgentResult
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.rollout.record import RolloutRecord
from hermes_core.rollout.task_setup import set_up
from hermes_core.rollout.verification.verifier_sandboxes import VerifierSandboxes

if TYPE_CHECKING:
    from hermes_core.rollout.runtime import Runtime

_OF_NETWORKS: Final = (ConnectionError, TimeoutError, BlockingIOError, InterruptedError)
_OF_THIS_PROCESS: Final = frozenset({
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.EADDRINUSE, errno.EADDRNOTAVAIL,
})  # fmt: skip
_ABOUT_DATA: Final = (
    *(ValueError, LookupError, ArithmeticError, SyntaxError, RecursionError, EOFError),
    *(TypeError, AttributeError),  # of a list instead of a mapping, of a text instead of a number
)
_FORMATS: Final = frozenset({
    "PIL", "_csv", "_lzma", "_pickle", "binascii", "configparser", "gzip", "jsonschema", "pickle", "pyexpat", "re",
    "sqlite3", "struct", "tarfile", "xml", "yaml", "zipfile", "zlib",
})  # fmt: skip
"""Modules whose errors mean that data does not have the expected form."""


def is_about_data(error: Exception) -> bool:
    """Tell whether an error was raised because of data that was read, not because code is wrong."""
    return isinstance(error, _ABOUT_DATA) or type(error).__module__.partition(".")[0] in _FORMATS


def is_workspace_error(record: RolloutRecord, error: BaseException | None) -> bool:
    """Tell whether a verifier may have failed because of what it found in the rollout's sandbox.

    It or a file call said so, its time ended, or it has no verdict. That is not proof: the cause may be this
    machine or the verifier.
    """
    # A failure of a sandbox or of this machine is not judged by its causes.
    if error is None or isinstance(error, BackendError) or "sandbox" not in record.provenance:
        return False
    if isinstance(error, WorkspaceError | VerifierTimeoutError | NoVerdictError) or (
        isinstance(error, OSError) and _may_be_of_a_file(error)
    ):
        return True
    return is_workspace_error(record, error.__cause__)


def _may_be_of_a_file(error: OSError) -> bool:
    # Network libraries have their own subclasses of `OSError`.
    is_plain = type(error).__module__ == "builtins" and not isinstance(error, _OF_NETWORKS)
    return is_plain and error.errno not in _OF_THIS_PROCESS


def is_suspect(record: RolloutRecord, error: Exception) -> bool:
    """Tell whether the model may have ended its sandbox, as the infrastructure or a person may have too.

    It is not a suspect before its first valid call, or if the sandbox ended by its own lifetime.
    """
    place = record.provenance.get("sandbox")
    has_acted = record.counters["tool_calls_schema_valid"] > 0
    is_of_rollout = isinstance(error, BackendError) and not isinstance(error, JudgeLostError)
    return is_of_rollout and has_acted and place is not None and not place.get("expired")


JudgeIn = Callable[[VerifierSandboxes, AgentResult], Awaitable[object]]
"""Judges a result with the task's verifier in the given sandboxes."""


async def works_untouched(
    runtime: Runtime, live: RolloutContext, record: RolloutRecord, judge_in: JudgeIn, *, must_score: bool
) -> bool:
    """Judge an untouched sandbox of the rollout's task; tell whether that gave a score.

    Without `must_score` it is enough that the sandbox can be made and is not lost while the verifier works. What was
    used is recorded under `control` of the rollout's `verification`.

    Raises:
        HermesError: One that would hit every other rollout as well.
    """
    control, is_open, problem = RolloutRecord(record.spec), False, ""
    try:
        async with runtime.open_sandbox(runtime.sandbox_for(record.spec.task, rollout_id=live.rollout_id)) as sandbox:
            await set_up(record.spec.task, sandbox)
            await sandbox.renew()
            is_open = True
            context = RolloutContext(runtime, rollout_id=live.rollout_id, sandbox=sandbox)
            context.state = live.state
            async with VerifierSandboxes(runtime, context, control) as sandboxes:
                await judge_in(sandboxes, record.agent_result(copy.deepcopy(list(record.conversation.messages))))
    except Exception as error:  # whatever a plugin raises is how the control ended
        if isinstance(error, HermesError) and error.fatal:
            raise
        if must_score or not is_open or isinstance(error, BackendError):
            problem = str(error) or type(error).__name__
    note = control.provenance.get("verification", {}) | {"problem": problem}
    record.provenance.setdefault("verification", {})["control"] = note
    return not problem
