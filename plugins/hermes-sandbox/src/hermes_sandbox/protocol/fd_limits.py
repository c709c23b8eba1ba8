"""Handles a lack of file descriptors in this process: reports it, and cleans up without one."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import BackendError

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
_HINT: Final = "ulimit -n 65536, or fewer sandboxes at once"


def is_exhaustion(error: OSError) -> bool:
    """Tell whether an error was caused by a lack of descriptors."""
    return error.errno in _EXHAUSTED


@contextlib.contextmanager
def suppress_exhausted() -> Iterator[None]:
    """Ignore a lack of descriptors in something that is retried anyway."""
    try:
        yield
    except OSError as error:
        if not is_exhaustion(error):
            raise


def system_error(what: str, error: OSError, hint: str | None = None) -> BackendError:
    """Return the error for an operation that the system refused."""
    return BackendError(f"{what}: {error}", hint=_HINT if is_exhaustion(error) else hint)


def run_program(argv: Sequence[str]) -> tuple[int, str]:
    """Run a program to its end; returns its status and its standard error. Blocks."""
    try:
        # Early releases of Python 3.11 leak the pipes of `subprocess` if the next pipe cannot be opened.
        with Path(os.devnull).open("r+b", buffering=0) as nothing:
            done = subprocess.run(argv, check=False, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE)
    except OSError as error:
        if not is_exhaustion(error):
            raise
        # Its pipes could not be opened; it can still be run without them.
        return _run_silently(argv), os.strerror(error.errno or 0)
    return done.returncode, done.stderr.decode(errors="replace").strip()


def _run_silently(argv: Sequence[str]) -> int:
    silent = [(os.POSIX_SPAWN_CLOSE, fd) for fd in (0, 1, 2)]
    pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=silent)
    with contextlib.suppress(ChildProcessError):  # something else in this process waits for every child
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 0
