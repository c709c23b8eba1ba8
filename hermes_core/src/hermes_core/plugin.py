"""The core's own components, registered through the same entry-point group as a stranger's."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import BackendSpec, EngineSpec, TaskSourceSpec, ToolsetSpec, ToolSpec


@hookimpl
def hermes_tools() -> Iterable[ToolSpec]:
    """Declare the built-in tools."""
    from hermes_tools.catalog import TOOLS

    return TOOLS


@hookimpl
def hermes_toolsets() -> Iterable[ToolsetSpec]:
    """Declare the predecessor's toolsets."""
    from hermes_tools.catalog import TOOLSETS

    return TOOLSETS


@hookimpl
def hermes_backends() -> Iterable[BackendSpec]:
    """Declare the backend `local`."""
    from hermes_sandbox.local.declaration import LOCAL

    return [LOCAL]


@hookimpl
def hermes_engines() -> Iterable[EngineSpec]:
    """Declare the engine `local`."""
    return [
        EngineSpec(
            name="local",
            summary="Rollouts in the process of the run itself.",
            target="hermes_runner.run.local_engine:LocalEngine",
        )
    ]


@hookimpl
def hermes_task_sources() -> Iterable[TaskSourceSpec]:
    """Declare the readers of JSONL task files and of Harbor task folders."""
    return [
        TaskSourceSpec(
            name="jsonl",
            summary="One task a line.",
            target="hermes_runner.tasks.jsonl:JsonlSource",
            suffixes=(".jsonl",),
        ),
        TaskSourceSpec(
            name="harbor",
            summary="A Harbor / Terminal-Bench task folder, or a folder of them.",
            target="hermes_runner.tasks.harbor:HarborSource",
            suffixes=("",),
        ),
    ]
