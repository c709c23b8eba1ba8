"""The folder of a run without `--out`: `runs/TIME-TASKS`, with the link `runs/latest` to the last one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.errors import OutputError
from hermes_runner.file_writing import unwritable_error
from hermes_runner.output import (
    MANIFEST,
    SUMMARY,
    FolderTakenError,
    OutputFolder,
    differences,
    holds_nothing,
)

RUNS: Final = Path("runs")
LATEST: Final = "latest"
_NAMED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-.+")
_LONGEST: Final = 40


def choose_folder(fingerprint: Mapping[str, Any], tasks: str, *, retry_failed: bool, root: Path = RUNS) -> Path:
    """Return the folder of the newest interrupted run with the same settings, or a new folder.

    With `retry_failed`, a complete run is continued as well. A run that another process is running is not.

    Raises:
        OutputError: No folder can be made.
    """
    try:
        names = sorted((path.name for path in root.iterdir() if _NAMED.fullmatch(path.name)), reverse=True)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise unwritable_error(root, error) from error
    for name in names:
        folder = root / name
        if _has_settings(folder, fingerprint) and (retry_failed or not _is_complete(folder)) and _is_free(folder):
            return folder
    return _make(root, tasks)


def link_latest(folder: Path) -> str:
    """Point the link `latest` beside a run's folder to it; return why that failed, or an empty text."""
    link, draft = folder.parent / LATEST, folder.parent / f".{LATEST}.{secrets.token_hex(4)}"
    try:
        draft.symlink_to(folder.name)
        draft.replace(link)
    except OSError as error:
        draft.unlink(missing_ok=True)
        return f"{link} does not point to {folder}: {error.strerror}; rename what is there"
    return ""


def open_chosen(choose: Callable[[], Path], open_at: Callable[[Path], OutputFolder]) -> OutputFolder:
    """Open the chosen folder; choose again if another process took it. Remove an empty one that cannot be opened."""
    while True:
        path = choose()
        try:
            return open_at(path)
        except FolderTakenError:
            continue
        except OutputError:
            discard_empty(path)
            raise


def discard_empty(folder: Path) -> None:
    """Remove the folder of a run that recorded nothing, such as one that could not start."""
    if not holds_nothing(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    link = folder.parent / LATEST
    with contextlib.suppress(OSError):
        if link.is_symlink() and str(link.readlink()) == folder.name:
            link.unlink()
            if others := [path for path in folder.parent.iterdir() if _NAMED.fullmatch(path.name)]:
                link_latest(max(others))


def _make(root: Path, tasks: str) -> Path:
    stem = re.sub(r"[^\w.-]+", "-", Path(tasks).stem)[:_LONGEST] or "tasks"
    start = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
    for number in count(1):
        folder = root / f"{start}-{stem}{f'-{number}' if number > 1 else ''}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable_error(folder, error) from error
        return folder
    raise AssertionError  # unreachable, as count() does not end


def _has_settings(folder: Path, fingerprint: Mapping[str, Any]) -> bool:
    found = _read(folder / MANIFEST).get("fingerprint")
    return isinstance(found, dict) and not differences(found, fingerprint)


def _is_complete(folder: Path) -> bool:
    summary = _read(folder / SUMMARY)
    try:
        return bool(summary["rollouts"]["total"] >= summary["run"]["planned"])
    except (KeyError, TypeError):
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_free(folder: Path) -> bool:
    try:
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
