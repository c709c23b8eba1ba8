"""The contract's `Processes` for a sandbox with an agent."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from importlib import resources, util
from typing import Any, Final, final

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import ProcessLimitError, UnavailableComponentError
from hermes_core.contracts.sandbox import ProcessInfo, ProcessOutput
from hermes_sandbox.protocol.client import require_fits
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_sandbox.protocol.validation import check_path, check_variables, encode_text

_READ_MAX: Final = 8 << 20
_REMEMBERED: Final = 256
"""Remembered commands above which those of processes that the slot no longer lists are dropped."""
_MAX_SIDE: Final = 0xFFFF
_KILL_MARGIN: Final = 15.0


@final
class AgentProcesses:
    """Sends requests to the sandbox's slot; `slot` returns the current one, or raises `SandboxLostError`."""

    def __init__(self, slot: Callable[[], AgentSlot]) -> None:
        self._slot = slot
        # Kept on this side, since a command can be longer than the frame that lists many processes.
        self._commands: dict[tuple[AgentSlot, str], str] = {}

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        rows: int = 30,
        cols: int = 120,
    ) -> ProcessInfo:
        """Start a bash command beside the session; when cancelled, it is not started, or killed again.

        A terminal's TERM is the sandbox's, `dumb`; name another one in `env` for a full-screen program.

        Raises:
            ProcessLimitError: The limit of running processes is reached.
            UnavailableComponentError: `pty` is asked for and ptyprocess is not installed here.
            OSError: `cwd` cannot be entered.
        """
        body = encode_text(command, "a command")
        require_fits(body, "a command")
        header = {
            "op": "job_start",
            "cwd": None if cwd is None else check_path(cwd),
            "env": check_variables(env or {}),
            "pty": pty,
            "rows": _side(rows),
            "cols": _side(cols),
        }
        slot = self._slot()
        await self._forget_old(slot)
        source = await asyncio.to_thread(ptyprocess_source) if pty else b""
        starting = asyncio.ensure_future(self._start(slot, header, body, source))
        try:
            answer = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await run_uncancelled(_undo(slot, starting))
            raise
        except BlockingIOError as error:
            raise ProcessLimitError(
                f"no more background processes can be started: {error.strerror}", hint="end one of them"
            ) from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, cwd) from None
        self._commands[slot, answer["id"]] = command
        return self._info(slot, answer)

    async def _start(self, slot: AgentSlot, header: dict[str, Any], body: bytes, source: bytes) -> dict[str, Any]:
        try:
            answer, _ = await slot.request(header, body)
        except OSError as error:
            if error.errno != errno.ENOPKG:
                raise
            await slot.client.request({"op": "module", "name": "ptyprocess"}, source)
            answer, _ = await slot.request(header, body)
        return answer

    async def _forget_old(self, slot: AgentSlot) -> None:
        if len(self._commands) >= _REMEMBERED:
            known = {info.id for info in await self.list()}
            self._commands = {key: text for key, text in self._commands.items() if key[0] is slot and key[1] in known}

    def _info(self, slot: AgentSlot, answer: Mapping[str, Any]) -> ProcessInfo:
        return ProcessInfo(command=self._commands.get((slot, answer["id"]), ""), **answer)

    async def list(self) -> list[ProcessInfo]:
        """Return the running processes and the last ended ones, oldest first."""
        slot = self._slot()
        answer, _ = await slot.request({"op": "job_list"})
        return [self._info(slot, one) for one in answer["jobs"]]

    async def _ask(
        self, operation: str, process_id: str, *, deadline: float | None = None, body: bytes = b"", **fields: Any
    ) -> tuple[AgentSlot, dict[str, Any], bytes]:
        slot = self._slot()
        answer, data = await slot.request({"op": operation, "job": process_id, **fields}, body, deadline=deadline)
        return slot, answer, data

    async def poll(self, process_id: str) -> ProcessInfo:
        """Describe one process."""
        slot, answer, _ = await self._ask("job_poll", process_id)
        return self._info(slot, answer)

    async def read(self, process_id: str, *, offset: int = 0, limit: int = 65536) -> ProcessOutput:
        """Return output from byte `offset` on, at most `limit` bytes; the last 1 MiB is kept."""
        if limit < 0:
            raise ValueError(f"limit: expected 0 or more, got {limit}")
        _, answer, data = await self._ask("job_read", process_id, offset=offset, limit=min(limit, _READ_MAX))
        return ProcessOutput(data=data, **answer)

    async def wait(self, process_id: str, *, timeout: float | None = None) -> ProcessInfo:
        """Wait until it has ended, or `timeout` seconds."""
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout: expected a number of seconds, 0 or more, got {timeout!r}")
        slot, answer, _ = await self._ask("job_wait", process_id, timeout=timeout)
        return self._info(slot, answer)

    async def write(self, process_id: str, data: bytes) -> int:
        """Write to its stdin or terminal and return the bytes taken.

        If it has not read for two seconds, the count is smaller than given, and the rest is dropped.

        Raises:
            BrokenPipeError: Its input is closed.
        """
        require_fits(data, "input")
        _, answer, _ = await self._ask("job_write", process_id, body=data)
        if answer["broken"]:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), process_id)
        taken: int = answer["taken"]
        return taken

    async def close_stdin(self, process_id: str) -> None:
        """Close its input; a terminal gets the end-of-file character."""
        await self._ask("job_close", process_id)

    async def resize(self, process_id: str, *, rows: int, cols: int) -> None:
        """Change the size of its terminal."""
        await self._ask("job_resize", process_id, rows=_side(rows), cols=_side(cols))

    async def kill(self, process_id: str, *, grace: float = 2.0) -> ProcessInfo:
        """End it and everything it started: SIGTERM, after `grace` seconds SIGKILL; returns its final state.

        This finds its descendants, its session, and processes with its mark in the environment. A process that left all
        three ends with the sandbox.
        """
        if not grace >= 0:
            raise ValueError(f"grace: expected a number of seconds, 0 or more, got {grace!r}")
        slot, answer, _ = await self._ask("job_kill", process_id, grace=grace, deadline=grace + _KILL_MARGIN)
        return self._info(slot, answer)


async def _undo(slot: AgentSlot, starting: asyncio.Task[dict[str, Any]]) -> None:
    await asyncio.wait((starting,))
    if not starting.cancelled() and starting.exception() is None:
        await slot.request({"op": "job_kill", "job": starting.result()["id"], "grace": 0.0})


def _side(length: int) -> int:
    if not 1 <= length <= _MAX_SIDE:
        raise ValueError(f"expected 1 to {_MAX_SIDE} rows and columns, got {length}")
    return length


def ptyprocess_source() -> bytes:
    """Return ptyprocess as one module; its second one only holds an error class and what `shutil` has, too."""
    if util.find_spec("ptyprocess") is None:
        raise UnavailableComponentError(
            "a process on a terminal needs the package ptyprocess, which is not installed",
            hint="pip install 'hermes-sandbox[pty]'",
        )
    folder = resources.files("ptyprocess")
    text = (folder / "ptyprocess.py").read_text(encoding="utf-8")
    own = (folder / "util.py").read_text(encoding="utf-8")
    return text.replace("from .util import which, PtyProcessError", own).encode()
