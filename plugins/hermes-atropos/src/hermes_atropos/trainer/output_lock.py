"""The lock of a file of groups: for one process at a time, not inherited by forked children."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from hermes_atropos.trainer.process_settings import ANOTHER
from hermes_core.contracts.errors import OutputError

_HELD: Final[set[Path]] = set()
"""Lock files that this process holds. The system's record locks belong to the whole process: it would grant one to the
same process twice, and drop both when either is closed.
"""


class OutputLock:
    """A lock acquired on creation; raises `OutputError` with the holder's process id if another process has it.

    It is a record lock on a file that nothing else opens, so forked workers of a killed process do not hold it.
    """

    def __init__(self, path: Path) -> None:
        self._file = lock_file(path).resolve()
        self._fd = -1
        if self._file in _HELD:
            raise _in_use(path, str(os.getpid()))
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._take(path)
        except OSError as error:
            self._close()
            raise OutputError(f"{path} cannot be written: {error.strerror}", hint=ANOTHER) from error
        _HELD.add(self._file)

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        if self._fd >= 0:
            _HELD.discard(self._file)
            self._close()

    def _take(self, path: Path) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = os.pread(self._fd, 20, 0).decode(errors="replace").strip()
            self._close()
            raise _in_use(path, holder) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_file(path: Path) -> Path:
    """Return the lock file of a file of groups."""
    return path.with_name(f".{path.name}.lock")


def _in_use(path: Path, holder: str) -> OutputError:
    who = f"process {holder}" if holder else "another process"
    return OutputError(f"{who} is writing to {path}", hint=f"wait for it to end, or {ANOTHER}")
