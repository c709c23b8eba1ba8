"""Check that the local files of tasks are equal on every worker; a task whose files differ is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry
from hermes_core.rollout import Runtime, Seal, hash_files

_DOCKERFILE: Final = "dockerfile"

Files = dict[str, str]
"""Fingerprints by path: a hash, the size of an image, or why the file cannot be read."""


async def files_of(tasks: Iterable[Task], registry: Registry) -> dict[str, Files]:
    """Return, by task id, the files that the tasks' verifiers and images name; tasks that name none are left out."""
    found: dict[str, Files] = {}
    async with Runtime(registry) as runtime:
        for task in tasks:
            seal = await Seal.of(runtime, task, None)
            image = await asyncio.to_thread(_image, str(task.sandbox.get("image") or ""))
            if seal.inputs or image:
                found[task.id] = {**seal.inputs, **image}
    return found


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Describe the differences of a worker's files, or return None if all are equal."""
    for path in sorted({*ours, *theirs}):
        if ours.get(path) != theirs.get(path):
            return f"{path} differs from the run's machine: {theirs.get(path, 'missing')}"
    return None


def _image(image: str) -> Files:
    """Describe an image that is a file here: a Dockerfile with its folder, or an archive by its size."""
    scheme, _, rest = image.rpartition(":")
    path = Path(rest)
    if scheme == _DOCKERFILE:
        return hash_files((path.parent,))
    if "/" not in rest or not path.is_file():
        return {}
    return {rest: f"{path.stat().st_size} bytes"}
