"""Set up a task in its sandbox: place its files, then run its setup commands."""

from __future__ import annotations

from hermes_core.contracts.errors import TaskError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.contracts.task import Task


async def set_up(task: Task, sandbox: Sandbox) -> None:
    """Place the files and run the commands; any failure is a `TaskError`."""
    for file in task.files:
        try:
            await sandbox.write_file(file.path, file.data, mode=file.mode)
        except OSError as error:
            raise TaskError(f"task {task.id!r}: file {file.path!r} cannot be placed: {error}") from error
    for command in task.setup:
        # In a subshell, so that exports and directory changes do not reach the model's session.
        result = await sandbox.exec(f"(\n{command}\n)", merge_stderr=True)
        if result.exit_code != 0:
            tail = result.output[-500:].strip()
            raise TaskError(f"task {task.id!r}: setup {command!r} exited {result.exit_code}: {tail}")
