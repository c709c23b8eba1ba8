"""Hash what verification depends on before the model's part, and compare it afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import VerifierError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.contracts.task import Task
from hermes_core.specs import ACCESS_LEVELS, Access

if TYPE_CHECKING:
    from hermes_core.rollout.runtime import Runtime
    from hermes_core.specs import Ref, VerifierSpec

_PIECE: Final = 4 << 20
_DEEPEST: Final = 16
"""The greatest depth to which verifiers may name others."""
_ABSENT: Final = "absent"


@dataclass
class Seal:
    """The hashes of one rollout: of this machine's files that its verifiers read, and of protected paths inside.

    If a verifier cannot name them, `problem` says why, and there is no reward.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    protected: dict[str, str] = field(default_factory=dict)
    problem: Exception | None = None
    _sources: tuple[Path, ...] = ()
    _places: tuple[str, ...] = ()

    @classmethod
    async def of(cls, runtime: Runtime, task: Task, sandbox: Sandbox | None) -> Seal:
        """Ask the task's verifiers which files they depend on, and hash these."""
        if task.verifier is None:
            return cls()
        sources: list[Path] = []
        places = list(task.precautions.protected)
        try:
            for _, verifier, _ in all_verifiers(runtime, task.verifier):
                sources += [Path(path) for path in _answers(verifier, "inputs")]
                places += [str(path) for path in _answers(verifier, "protected_paths")]
        except Exception as error:  # noqa: BLE001 - the plugin boundary: whatever it raises, there will be no reward
            return cls(problem=error)
        seal = cls(_sources=tuple(sources), _places=tuple(dict.fromkeys(places)))
        seal.inputs = await asyncio.to_thread(hash_files, seal._sources)
        if sandbox is not None:
            seal.protected = await _states(sandbox, seal._places)
        return seal

    async def check_inputs(self) -> None:
        """Raise the problem of a verifier, or a `VerifierError` for a changed file of this machine."""
        if self.problem is not None:
            raise self.problem
        now = await asyncio.to_thread(hash_files, self._sources)
        if changed := _differences(self.inputs, now):
            raise VerifierError(
                f"{changed[0]} was changed while the rollout ran; the verifier reads it",
                hint="keep what verifiers read out of reach of the sandboxes: --isolation bwrap, or another user",
            )

    async def find_broken(self, sandbox: Sandbox) -> list[str]:
        """Return the protected paths that have changed."""
        return _differences(self.protected, await _states(sandbox, self._places, expected=self.protected))


def all_verifiers(
    runtime: Runtime, ref: Ref, *, least: Access = "live", depth: int = 0
) -> Iterator[tuple[VerifierSpec, Any, Access]]:
    """Make a verifier and all that it names, each with its access, at least `least`; raises what they raise."""
    if depth > _DEEPEST:
        raise VerifierError(f"verifier {ref.name!r}: verifiers name each other more than {_DEEPEST} deep")
    spec, verifier = runtime.verifier(ref.name, ref.options)
    access = max(spec.access, least, key=ACCESS_LEVELS.index)
    yield spec, verifier, access
    for part in _answers(verifier, "verifiers"):
        yield from all_verifiers(runtime, part, least=access, depth=depth + 1)


def _answers(verifier: Any, name: str) -> Iterable[Any]:
    method = getattr(verifier, name, None)
    return method() if callable(method) else ()


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]


def hash_files(sources: Iterable[Path]) -> dict[str, str]:
    """Return the hash of each path and, for a directory, of everything below it."""
    found: dict[str, str] = {}
    for source in sources:
        found[str(source)] = _hash(source)
        for folder, folders, files in os.walk(source):
            found |= {str(Path(folder, name)): _hash(Path(folder, name)) for name in (*folders, *files)}
    return found


def _hash(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"symlink to {path.readlink()}, " + ("" if path.is_dir() else _digest(path))
        return "directory" if path.is_dir() else _digest(path)
    except OSError as error:
        return error.strerror or _ABSENT


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _states(
    sandbox: Sandbox, places: Iterable[str], *, expected: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Describe the paths and everything below them, only so far that an addition is noticed."""
    found: dict[str, str] = {}
    waiting = [(path, await _entry(sandbox, path)) for path in places]
    while waiting and (expected is None or len(found) <= len(expected)):
        path, entry = waiting.pop()
        before = None if expected is None else expected.get(path)
        found[path] = _ABSENT if entry is None else await _state(sandbox, path, entry, before)
        if entry is not None and entry.kind == "directory":
            waiting += [(posixpath.join(path, inner.path), inner) for inner in await sandbox.list_dir(path)]
    return found


async def _entry(sandbox: Sandbox, path: str) -> FileStat | None:
    """Describe a path itself: a listing follows no symlink."""
    folder, name = posixpath.split(path)
    try:
        listed = await sandbox.list_dir(folder or ".")
    except OSError:
        return None
    return next((entry for entry in listed if entry.path == name), None)


async def _state(sandbox: Sandbox, path: str, entry: FileStat, before: str | None) -> str:
    if entry.kind in {"directory", "other"}:
        return entry.kind
    kind = f"{entry.kind} of {entry.size} bytes"
    # A different size is a different file; a file that the model made is not read: it may be endless.
    if before is not None and not before.startswith(kind):
        return kind
    try:
        return f"{kind}, sha256 {await _sum(sandbox, path)}"
    except OSError as error:
        return f"{kind}, {error.strerror}"


async def _sum(sandbox: Sandbox, path: str) -> str:
    digest, offset = hashlib.sha256(), 0
    while piece := await sandbox.read_file(path, offset=offset, length=_PIECE):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
