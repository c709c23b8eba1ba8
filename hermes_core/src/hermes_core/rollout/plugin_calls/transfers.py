"""Copies between this machine and a rollout's sandbox, answered in the form of hermes-agent: one answer per file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from hermes_core.contracts.sandbox import FileStat, Sandbox

Answer = dict[str, Any]


async def upload_file(sandbox: Sandbox, local_path: str, remote_path: str) -> Answer:
    """Copy one file; a directory is refused."""
    source = Path(local_path)
    if await asyncio.to_thread(source.is_dir):
        return {"exit_code": -1, "output": f"{local_path}: Is a directory"}
    try:
        done = await sandbox.upload(source, remote_path)
    except OSError as error:
        return {"exit_code": -1, "output": _about(error, local_path)}
    return {"exit_code": 0, "output": f"{done.bytes} bytes written to {remote_path}"}


async def upload_dir(sandbox: Sandbox, local_dir: str, remote_dir: str) -> list[Answer]:
    """Copy a directory; an entry that cannot be read, or is not a file, gets an answer that says so."""
    root = Path(local_dir)
    if not await asyncio.to_thread(root.is_dir):
        return [{"exit_code": -1, "output": f"{local_dir}: not a directory"}]
    files = await asyncio.to_thread(lambda: sorted(_files_below(root)))
    try:
        done = await sandbox.upload(root, remote_dir)
    except OSError as error:
        return [{"exit_code": -1, "output": _about(error, local_dir)}]
    target = PurePosixPath(remote_dir)
    copied = [(path, what) for path, what in files if path not in dict(done.omitted)]
    answers: list[Answer] = [{"exit_code": 0, "output": f"{what} written to {target / path}"} for path, what in copied]
    return answers + [{"exit_code": -1, "output": f"{root / path}: {reason}"} for path, reason in done.omitted]


async def download_file(sandbox: Sandbox, remote_path: str, local_path: str) -> Answer:
    """Copy one file; a directory is refused."""
    try:
        if (await sandbox.stat(remote_path)).kind == "directory":
            return {"success": False, "error": f"{remote_path}: Is a directory"}
        done = await sandbox.download(remote_path, Path(local_path))
    except OSError as error:
        return {"success": False, "error": f"{remote_path}: {error}"}
    return {"success": True, "bytes": done.bytes}


async def download_dir(sandbox: Sandbox, remote_dir: str, local_dir: str) -> list[Answer]:
    """Copy a directory; an entry that cannot be read, or is not a file, gets an answer that says so."""
    try:
        listed = await _list_files(sandbox, remote_dir)
        done = await sandbox.download(remote_dir, Path(local_dir))
    except OSError as error:
        return [{"success": False, "error": f"{remote_dir}: {error}"}]
    omitted = dict(done.omitted)
    copied = [path for path in listed if path not in omitted]
    found = await asyncio.to_thread(lambda: [_answer(f"{remote_dir}/{path}", Path(local_dir, path)) for path in copied])
    return found + [{"success": False, "error": f"{remote_dir}/{path}: {why}"} for path, why in omitted.items()]


async def _list_files(sandbox: Sandbox, root: str) -> list[str]:
    """Return the files and symlinks below a directory, which a download does not name."""
    found: list[str] = []
    waiting: list[tuple[str, list[FileStat]]] = [("", await sandbox.list_dir(root))]
    while waiting:
        below, entries = waiting.pop()
        for entry in entries:
            path = below + entry.path
            if entry.kind in {"file", "symlink"}:
                found.append(path)
            elif entry.kind == "directory":
                try:
                    waiting.append((f"{path}/", await sandbox.list_dir(f"{root}/{path}")))
                except (PermissionError, FileNotFoundError, NotADirectoryError):
                    continue  # The download reports the problem, or the entry no longer exists.
    return sorted(found)


def _answer(remote: str, local: Path) -> Answer:
    try:
        size = 0 if local.is_symlink() else local.stat().st_size
    except FileNotFoundError:
        return {"success": False, "error": f"{remote}: was deleted while the directory was copied"}
    return {"success": True, "bytes": size}


def _files_below(root: Path) -> Iterator[tuple[str, str]]:
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(folder, name)
            shown = path.relative_to(root).as_posix()
            if path.is_symlink():
                yield shown, "a symlink"
            elif path.is_file():
                yield shown, f"{path.stat().st_size} bytes"


def _about(error: OSError, path: str) -> str:
    return f"{error.filename or path}: {error.strerror}"
