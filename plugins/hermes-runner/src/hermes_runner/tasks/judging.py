"""Checks before a run whether a task can be judged, and whether a model could tamper with its verification."""

from __future__ import annotations

from typing import Final, cast

from hermes_core.contracts.errors import HermesError, SandboxRefusedError, VerifierError
from hermes_core.contracts.task import Task
from hermes_core.rollout import Runtime, all_verifiers, artifacts_for, least_access, require_own_place
from hermes_core.specs import ACCESS_LEVELS, Access, BackendSpec

WITHIN_REACH: Final = (
    "commands run as root in the sandbox that is judged, so a model can replace the programs that judge it; to have a "
    'new sandbox of the image judged, name the task\'s artifacts ("/": all changes outside the folders of programs)'
)


def judging_problem(task: Task, runtime: Runtime) -> HermesError | None:
    """Return why the runtime's settings let no rollout of the task be judged, or None if they do."""
    try:
        _lowest_access(task, runtime)
    except (SandboxRefusedError, VerifierError) as error:
        return error
    except Exception:  # noqa: BLE001 - each rollout reports a verifier that cannot be created, with its blame
        return None
    return None


def is_within_reach(task: Task, runtime: Runtime) -> bool:
    """Tell whether a model that is root could replace what the task's verifiers execute."""
    try:
        return runtime.commands_are_root(task) and _lowest_access(task, runtime) != "fresh"
    except Exception:  # noqa: BLE001 - as above
        return False


def _lowest_access(task: Task, runtime: Runtime) -> Access:
    """Return the lowest access of the task's verifiers that judge a sandbox; `fresh` if none does."""
    lowest = ACCESS_LEVELS[-1]
    if task.verifier is None:
        return lowest
    declared = cast("BackendSpec", runtime.registry.spec("backend", runtime.backend_ref.name)).isolation
    level = runtime.sandbox_for(task, rollout_id="").isolation or declared[0]
    for spec, _, access in all_verifiers(runtime, task.verifier, least=least_access(runtime, task)):
        for path in artifacts_for(task, spec, access):
            if path.startswith("/"):
                require_own_place(level, path)
        if spec.needs_sandbox:
            lowest = min(lowest, access, key=ACCESS_LEVELS.index)
    return lowest
