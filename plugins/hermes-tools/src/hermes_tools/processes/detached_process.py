"""A process on this machine that an earlier run started. It can be polled and killed; its output is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from typing import Final

from hermes_core.contracts.sandbox import ProcessInfo, ProcessOutput
from hermes_tools.processes.host_processes import running_processes, signal_all, with_descendants
from hermes_tools.processes.process_checkpoint import start_of

_LOOK: Final = 0.02
_LAST: Final = 2.0


class DetachedProcess:
    """A process identified by pid and start time. Both are checked before each signal."""

    def __init__(self, *, pid: int, start: int, command: str, cwd: str, started_at: float) -> None:
        self._pid = pid
        self._start = start
        self._command = command
        self._cwd = cwd
        self._started_at = started_at

    def _info(self, *, running: bool) -> ProcessInfo:
        return ProcessInfo(
            id=str(self._pid),
            command=self._command,
            pid=self._pid,
            cwd=self._cwd,
            pty=False,
            started_at=self._started_at,
            running=running,
        )

    def _alive(self) -> bool:
        return start_of(self._pid) == self._start

    async def poll(self, process_id: str) -> ProcessInfo:
        """Describe the process. Its exit code is unknown, because it is not a child of this program."""
        del process_id
        return self._info(running=self._alive())

    async def read(self, process_id: str, *, offset: int = 0, limit: int = 65536) -> ProcessOutput:
        """Return no output: it went to the earlier run."""
        del process_id, offset, limit
        return ProcessOutput(data=b"", start=0, total=0, running=self._alive())

    async def write(self, process_id: str, data: bytes) -> int:
        """Raise BrokenPipeError: the earlier run held its input."""
        raise BrokenPipeError(errno.EPIPE, "the input of a detached process is gone", process_id or str(data))

    async def close_stdin(self, process_id: str) -> None:
        """Do nothing: its input ended with the earlier run."""

    async def wait(self, process_id: str, *, timeout: float | None = None) -> ProcessInfo:
        """Wait until the process ends, which the kernel reports on a pidfd."""
        del process_id
        try:
            descriptor = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return self._info(running=False)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ended.set)
        try:
            # Checked after the descriptor was opened: the descriptor always refers to the same process.
            if self._alive():
                async with asyncio.timeout(timeout):
                    await ended.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._info(running=self._alive())

    async def kill(self, process_id: str, *, grace: float = 2.0) -> ProcessInfo:
        """Kill it and all its descendants: SIGTERM, then SIGKILL after `grace` seconds. Return what was observed."""
        del process_id
        loop = asyncio.get_running_loop()
        seen: dict[int, int] = {self._pid: self._start}
        kill_at = loop.time() + grace
        asked = False
        while (members := _living(seen, self._pid)) and loop.time() < kill_at + _LAST:
            if loop.time() >= kill_at:
                signal_all(members, signal.SIGKILL)
            elif not asked:
                asked = True
                signal_all(members, signal.SIGTERM)
                signal_all(members, signal.SIGCONT)
            await asyncio.sleep(_LOOK)
        return self._info(running=bool(members))


def _living(seen: dict[int, int], leader: int) -> set[int]:
    """Return those of `seen` that are alive, their descendants, and the leader's session while the leader is alive."""
    running = running_processes()
    roots = {pid for pid, start in seen.items() if pid in running and running[pid].start == start}
    if leader in roots:
        roots |= {pid for pid, process in running.items() if process.session == leader}
    found = with_descendants(running, roots)
    seen.update((pid, running[pid].start) for pid in found)
    return found
