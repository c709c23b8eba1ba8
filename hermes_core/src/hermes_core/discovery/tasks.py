"""Read tasks from a path with the task source that claims it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from hermes_core.contracts.errors import ConfigError, HermesError, PluginError
from hermes_core.contracts.task import LoadedTasks, Task, TaskProblem, TaskSource
from hermes_core.discovery.components.lookup_errors import how_to_get
from hermes_core.discovery.traces import plugin_error
from hermes_core.nearest import nearest_names

if TYPE_CHECKING:
    from hermes_core.discovery.registry import Registry
    from hermes_core.specs import TaskSourceSpec

_USUAL_PACKAGE: Final = "hermes-runner"
"""It has the task sources of .jsonl files and of Harbor folders."""
_SHOWN_PROBLEMS: Final = 5


def load_tasks(
    path: str | Path, registry: Registry, *, source: str | None = None, options: Mapping[str, Mapping[str, Any]] = {}
) -> LoadedTasks:
    """Read tasks; `source` names the task source, else the path's ending decides. `options` are by task source.

    Problems of single tasks are returned. Raises `ConfigError` when there is nothing to run at all: the path does not
    exist, cannot be read, belongs to no task source, or holds no valid task.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"no task file or folder at {path}", hint=_neighbours(path))
    name = source or _source_for(path, registry)
    reader = cast("TaskSource", registry.create("task_source", name, options.get(name)))
    try:
        loaded = _without_duplicates(reader.read(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except HermesError:
        raise
    except (Exception, SystemExit) as error:  # the plugin boundary: whatever it raises, the message names the plugin
        raise plugin_error(f"task source {name!r}", registry.component("task_source", name).plugin.id, error) from error
    if not loaded.tasks:
        raise _nothing_valid(path, loaded.problems)
    return loaded


def _source_for(path: Path, registry: Registry) -> str:
    suffix = "" if path.is_dir() else path.suffix.lower() or "no ending"
    specs = [cast("TaskSourceSpec", spec) for spec in registry.specs("task_source")]
    claiming = [spec.name for spec in specs if suffix in spec.suffixes]
    if len(claiming) == 1:
        return claiming[0]
    if claiming:
        names = ", ".join(claiming)
        raise PluginError(f"{path} is claimed by several task sources: {names}", hint="disable the plugin of one")
    if not specs:
        hint = how_to_get(_USUAL_PACKAGE, registry.plugins)
        raise ConfigError(f"no task source is loaded, so nothing can read {path}", hint=hint)
    known = ", ".join(f"{s or 'a folder'} ({spec.name})" for spec in specs for s in spec.suffixes)
    raise ConfigError(f"no task source reads {path}: expected {known}, got {suffix or 'a folder'}")


def _without_duplicates(loaded: LoadedTasks) -> LoadedTasks:
    first: dict[str, Task] = {}
    problems = list(loaded.problems)
    for task in loaded.tasks:
        earlier = first.setdefault(task.id, task)
        if earlier is not task:
            message = f"this id is taken by the task at {earlier.source}; ids must be unique"
            problems.append(TaskProblem(source=task.source, task_id=task.id, message=message))
    return LoadedTasks(tasks=tuple(first.values()), problems=tuple(problems))


def _nothing_valid(path: Path, problems: Iterable[TaskProblem]) -> ConfigError:
    listed = [str(problem) for problem in problems]
    if not listed:
        hint = 'a task: {"id": "t1", "prompt": "…", "verifier": {"name": "exit_code", "options": {"command": "true"}}}'
        return ConfigError(f"{path} holds no task", hint=hint)
    shown = listed[:_SHOWN_PROBLEMS]
    if len(listed) > len(shown):
        shown.append(f"… and {len(listed) - len(shown)} more")
    text = "\n  ".join(shown)
    return ConfigError(f"{path} holds no valid task:\n  {text}", hint=f"see: hermes-core tasks list {path}")


def _neighbours(path: Path) -> str:
    """Suggest files near a path that does not exist."""
    parent = path.parent
    if not parent.is_dir():
        return f"the folder {parent} does not exist either"
    names = [entry.name for entry in parent.iterdir() if entry.is_dir() or entry.suffix == ".jsonl"]
    if near := nearest_names(path.name, names, cutoff=0.5):
        return f"did you mean {parent / near[0]}?"
    return f"{parent} has {', '.join(sorted(names)[:6]) or 'no task files'}"
