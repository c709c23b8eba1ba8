"""Read, list and pack files of a trajectory's workspace, and only of the workspace.

Paths are relative to the workspace or start with `/workspace`, which stands for its real location. A symlink is
followed if it stays inside. This is not a security boundary: the trajectory's own commands can read the same files. It
keeps an environment from storing files that are not in the workspace.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import mimetypes
import posixpath
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import Blame, HermesError
from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_tool_services.wire import (
    MOST_BYTES,
    MOST_ENTRIES,
    ArtifactArchiveRequestPayload,
    ArtifactArchiveResponsePayload,
    ArtifactListEntryPayload,
    ArtifactListRequestPayload,
    ArtifactListResponsePayload,
    ArtifactReadRequestPayload,
    ArtifactReadResponsePayload,
    OmittedPayload,
)

WORKSPACE: Final = "/workspace"
"""The name of a trajectory's workspace in every answer."""
_BLOCK: Final = 1 << 20


class ArtifactRefusedError(HermesError):
    """An artifact request was refused; `status` is the HTTP status 400, 403, 404 or 413."""

    blame = Blame.USER

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def inner_path(path: str, workspace: str) -> str:
    """Return a path relative to the workspace, without `.` and `..`.

    Raises:
        ArtifactRefusedError: The path is outside (403) or not valid (400).
    """
    if not path or "\0" in path:
        raise ArtifactRefusedError(400, f"expected a path, got {path!r}")
    relative = relative_path(path, workspace)
    normal = posixpath.normpath(relative)
    if normal.startswith(("/", "../")) or normal == "..":
        raise ArtifactRefusedError(403, f"Access denied: path outside workspace: {path}")
    return normal


def relative_path(path: str, workspace: str) -> str:
    """Make a path below `/workspace` or the real workspace relative; return others unchanged."""
    for root in (WORKSPACE, workspace.rstrip("/")):
        if path == root or path.startswith(f"{root}/"):
            return path[len(root) :].lstrip("/") or "."
    return path


async def read_artifact(sandbox: Sandbox, request: ArtifactReadRequestPayload) -> ArtifactReadResponsePayload:
    """Read a file or a range of it."""
    limit = _limit(request.max_bytes, MOST_BYTES, "max_bytes")
    start, length = (0, None) if request.range is None else (request.range.start, request.range.length)
    with _refusing(request.path):
        place = await _confine(sandbox, request.path)
        size = _file_size(await sandbox.stat(place), request.path)
        end = size if length is None else min(size, start + length)
        data = await sandbox.read_file(place, offset=start, length=max(0, min(end - start, limit)))
        digest = await _hash(sandbox, place) if request.include_sha256 else None
    text = data.decode("utf-8", "replace") if request.encoding == "text" else base64.b64encode(data).decode()
    return ArtifactReadResponsePayload(
        path=_workspace_path(place),
        content=text,
        encoding=request.encoding,
        truncated=start + len(data) < end,
        bytes=len(data),
        start=start,
        file_size=size,
        mime=mimetypes.guess_type(place)[0],
        sha256=digest,
    )


async def list_artifacts(sandbox: Sandbox, request: ArtifactListRequestPayload) -> ArtifactListResponsePayload:
    """List a directory, with `recursive` its whole tree; a symlink to a directory is listed but not entered."""
    limit = _limit(request.max_entries, MOST_ENTRIES, "max_entries")
    entries: list[ArtifactListEntryPayload] = []
    omitted: list[tuple[str, str]] = []
    with _refusing(request.path):
        place = await _confine(sandbox, request.path)
        pending = [place]
        await sandbox.list_dir(place)

    def answer(*, truncated: bool) -> ArtifactListResponsePayload:
        return ArtifactListResponsePayload(
            path=_workspace_path(place),
            entries=entries,
            truncated=truncated,
            omitted=OmittedPayload.first(omitted),
            omitted_count=len(omitted),
        )

    while pending:
        folder = pending.pop(0)
        try:
            found = await sandbox.list_dir(folder)
        except OSError as error:  # it was removed meanwhile, or is not readable
            omitted.append((folder, error.strerror or type(error).__name__))
            continue
        for entry in found:
            if len(entries) == limit:
                return answer(truncated=True)
            path = posixpath.normpath(posixpath.join(folder, entry.path))
            entries.append(_entry(path, entry))
            if request.recursive and entry.kind == "directory":
                pending.append(path)
    return answer(truncated=False)


async def archive_artifacts(sandbox: Sandbox, request: ArtifactArchiveRequestPayload) -> ArtifactArchiveResponsePayload:
    """Pack a file or a directory; symlinks are packed as symlinks, and entries beyond a limit are listed."""
    max_bytes = _limit(request.max_bytes, MOST_BYTES, "max_bytes")
    max_entries = _limit(request.max_entries, MOST_ENTRIES, "max_entries")
    with _refusing(request.path):
        place = await _confine(sandbox, request.path)
        async with _temporary() as target:
            moved = await sandbox.archive([place], target, max_bytes=max_bytes, max_entries=max_entries)
            data = await asyncio.to_thread(target.read_bytes)
    return ArtifactArchiveResponsePayload(
        path=_workspace_path(place),
        content=base64.b64encode(data).decode(),
        format=request.format,
        bytes=len(data),
        entry_count=moved.files,
        sha256=moved.sha256,
        omitted=OmittedPayload.first(moved.omitted),
        omitted_count=len(moved.omitted),
    )


def _limit(asked: int | None, most: int, name: str) -> int:
    if asked is not None and asked > most:
        raise ArtifactRefusedError(413, f"expected {name} of at most {most}, got {asked}; request a range, or several")
    return most if asked is None else asked


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Convert file system errors to refusals that name the requested path, never a path of this machine."""
    try:
        yield
    except PermissionError as error:
        raise ArtifactRefusedError(403, f"Access denied: {path}") from error
    except FileNotFoundError as error:
        raise ArtifactRefusedError(404, f"there is no {path}") from error
    except NotADirectoryError as error:
        raise ArtifactRefusedError(400, f"{path} is not a directory") from error
    except IsADirectoryError as error:
        raise ArtifactRefusedError(400, f"{path} is a directory") from error
    except OSError as error:
        raise ArtifactRefusedError(400, f"{path}: {error.strerror or error}") from error


async def _confine(sandbox: Sandbox, path: str) -> str:
    """Resolve the symlinks of a path and return it relative to the workspace."""
    place = inner_path(path, sandbox.workspace)
    folder = "."
    for name in place.split("/") if place != "." else ():
        entry = next((entry for entry in await sandbox.list_dir(folder) if entry.path == name), None)
        if entry is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if entry.kind == "symlink":
            return await _follow_link(sandbox, place, path)
        folder = posixpath.join(folder, name)
    return place


async def _follow_link(sandbox: Sandbox, place: str, path: str) -> str:
    command = f"realpath -ez -- . {shlex.quote(place)}"
    answer = await sandbox.exec(command, cwd=sandbox.workspace, timeout=30)
    found = answer.stdout.decode("utf-8", "surrogateescape").split("\0")
    if answer.exit_code != 0 or len(found) < 2:
        raise ArtifactRefusedError(404, f"{path} is a symlink that is broken or cannot be followed")
    root, target = found[0].rstrip("/"), found[1]
    if target != root and not target.startswith(f"{root}/"):
        raise ArtifactRefusedError(403, f"Access denied: path outside workspace: {path} is a symlink out of it")
    return target[len(root) :].lstrip("/") or "."


def _file_size(entry: FileStat, path: str) -> int:
    if entry.kind == "directory":
        raise ArtifactRefusedError(400, f"{path} is a directory; list or pack it")
    if entry.kind != "file":
        raise ArtifactRefusedError(400, f"expected a file, got a device, a pipe or a socket: {path}")
    return entry.size


async def _hash(sandbox: Sandbox, place: str) -> str:
    digest, offset = hashlib.sha256(), 0
    while block := await sandbox.read_file(place, offset=offset, length=_BLOCK):
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def _entry(path: str, entry: FileStat) -> ArtifactListEntryPayload:
    return ArtifactListEntryPayload(
        path=path, is_dir=entry.kind == "directory", size=entry.size, mtime=entry.mtime, kind=entry.kind
    )


def _workspace_path(place: str) -> str:
    return WORKSPACE if place == "." else f"{WORKSPACE}/{place}"


@asynccontextmanager
async def _temporary() -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="hermes-artifact-")
    try:
        yield Path(folder.name) / "archive.tar.gz"
    finally:
        await asyncio.to_thread(folder.cleanup)
