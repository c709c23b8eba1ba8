"""Records the running processes of a run on disk, so that the next run finds those that a killed run left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.errors import OutputError
from hermes_tools.processes.host_processes import running_process
from hermes_tools.processes.process_session import ProcessSession

_FIELDS: Final = ("command", "pid", "cwd", "started_at", "task_id", "session_key", "pid_scope", "sandbox_id", "pty")


class Checkpoint:
    """A JSON file that is replaced atomically at each start and end of a process.

    A pid identifies a process only together with its start time, within one boot and one PID namespace, so the file
    has all of these.
    """

    def __init__(self, path: Path, running: Callable[[], Iterable[ProcessSession]]) -> None:
        self._path = path
        self._running = running
        self._turn = asyncio.Lock()
        self._stale = False

    def touch(self) -> None:
        """Mark the file as out of date: a process has started or ended, and `save` must write it."""
        self._stale = True

    async def save(self) -> None:
        """Write the file if it is out of date, and return once it is on disk. Concurrent calls share a write."""
        async with self._turn:
            if self._stale:
                self._stale = False
                text = json.dumps([entry(session) for session in self._running()], indent=1)
                try:
                    await asyncio.to_thread(self._replace, text)
                except OutputError:
                    self._stale = True
                    raise

    def _replace(self, text: str) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.touch(0o600)  # commands can contain secrets: other users must never be able to read the file
            partial.write_text(text, encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise OutputError(
                f"cannot write the checkpoint of background processes {self._path}: {error.strerror or error}",
                hint="choose a writable folder with free space, or run without a checkpoint",
            ) from error

    async def load(self) -> list[dict[str, Any]]:
        """Return the entries of the previous run; none if there is no file.

        Raises:
            OutputError: The file is not a checkpoint.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[dict[str, Any]]:
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise self._read_error(str(error)) from error
        known = {*_FIELDS, "session_id", "start_time", "boot_id", "pid_namespace"}
        if not isinstance(entries, list) or not all(isinstance(one, dict) and known <= one.keys() for one in entries):
            raise self._read_error("it is not a list of processes")
        return entries

    def _read_error(self, why: str) -> OutputError:
        return OutputError(
            f"cannot read the checkpoint of background processes {self._path}: {why}",
            hint=f"remove it: rm {self._path}",
        )


def entry(session: ProcessSession) -> dict[str, Any]:
    """Return the checkpoint's entry for a process."""
    fields = {name: getattr(session, name) for name in _FIELDS}
    return {
        "session_id": session.id,
        **fields,
        "start_time": session.pid_start,
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
    }


def still_runs(written: dict[str, Any]) -> bool:
    """Return whether the process of a checkpoint entry still runs on this machine, and is not another with its pid."""
    if written["pid_scope"] != "host" or written["start_time"] is None:
        return False
    if written["boot_id"] != boot_id() or written["pid_namespace"] != pid_namespace():
        return False
    start: int = written["start_time"]
    return start_of(written["pid"]) == start


def start_of(pid: int) -> int | None:
    """Return the start time of a running process of this machine in ticks since boot, or None if it does not run."""
    process = running_process(pid)
    return None if process is None else process.start


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace() -> str:
    """Return the id of the PID namespace in which this program runs."""
    return str(Path("/proc/self/ns/pid").readlink())
