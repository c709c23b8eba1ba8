"""Tasks: reading them from a file or a folder, and what is wrong with those that cannot be used."""

from __future__ import annotations

from hermes_core.contracts.task_source import LoadedTasks, TaskProblem, TaskSource
from hermes_core.discovery.tasks import load_tasks

__all__ = ["LoadedTasks", "TaskProblem", "TaskSource", "load_tasks"]
