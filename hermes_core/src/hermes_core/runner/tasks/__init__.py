"""Tasks: reading them from a file or a folder, and what is wrong with those that cannot be used."""

from __future__ import annotations

from hermes_core.runner.tasks.loading import load_tasks
from hermes_core.runner.tasks.source import LoadedTasks, TaskProblem, TaskSource

__all__ = ["LoadedTasks", "TaskProblem", "TaskSource", "load_tasks"]
