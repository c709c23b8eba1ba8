"""Runs: task sources, scheduling, resume, sinks, summary and report."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_runner.config import DEFAULT_POLICY, Action, PluginConfig, RunConfig, load_config
    from hermes_runner.file_writing import JsonlFile
    from hermes_runner.output import OutputFolder
    from hermes_runner.policy import Policy
    from hermes_runner.run.local_engine import LocalEngine
    from hermes_runner.run.models import is_embedded
    from hermes_runner.run.plan import plan_groups, plan_rollouts
    from hermes_runner.run.run import Run, RunResult
    from hermes_runner.run.scheduling import Recorder, Scheduler, replacement_outcome
    from hermes_runner.tasks.check import NOTHING, SOLUTION, TaskCheck, check_task
    from hermes_runner.yaml_reading import read_yaml

__all__ = [
    "DEFAULT_POLICY", "NOTHING", "SOLUTION", "Action", "JsonlFile", "LocalEngine", "OutputFolder",
    "PluginConfig", "Policy", "Recorder", "Run", "RunConfig", "RunResult", "Scheduler", "TaskCheck",
    "check_task", "is_embedded", "load_config", "plan_groups", "plan_rollouts", "read_yaml", "replacement_outcome",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".config": "Action DEFAULT_POLICY PluginConfig RunConfig load_config",
            ".file_writing": "JsonlFile",
            ".output": "OutputFolder",
            ".policy": "Policy",
            ".run.local_engine": "LocalEngine",
            ".run.models": "is_embedded",
            ".run.plan": "plan_groups plan_rollouts",
            ".run.run": "Run RunResult",
            ".run.scheduling": "Recorder Scheduler replacement_outcome",
            ".tasks.check": "NOTHING SOLUTION TaskCheck check_task",
            ".yaml_reading": "read_yaml",
        },
    )
