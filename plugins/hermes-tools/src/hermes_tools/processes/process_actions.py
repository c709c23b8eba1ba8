"""The actions of the tool `process` for one rollout, with hermes-agent's answers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final

from hermes_core.contracts.sandbox import ProcessInfo, Sandbox
from hermes_tools.processes.process_registry import ProcessRegistry
from hermes_tools.processes.process_session import ProcessSession

DETACHED_NOTE: Final = "Started by an earlier run that is gone; its output history is unavailable."
_LIST_COMMAND: Final = 200
_LIST_PREVIEW: Final = 200
_POLL_PREVIEW: Final = 1000
_WAIT_PREVIEW: Final = 1000
_WAIT_OUTPUT: Final = 2000
_LOG_LINES: Final = 200


class RolloutProcesses:
    """One rollout's view of the registry, which never finds a process of another rollout.

    The answers are dictionaries with hermes-agent's keys. `consumer` names a reader: each reader has its own position
    in the output, so that a poll by one takes nothing away from another.
    """

    def __init__(
        self, registry: ProcessRegistry, task_id: str, sandbox: Sandbox | None = None, *, session_key: str = ""
    ) -> None:
        self.registry = registry
        self.task_id = task_id
        self.session_key = session_key
        self._sandbox = sandbox

    async def start(self, command: str, **options: Any) -> ProcessSession:
        """Start a process in the rollout's sandbox; the options are those of `ProcessRegistry.start`."""
        if self._sandbox is None:
            raise ValueError(f"rollout {self.task_id} has no sandbox to start a process in")
        options = {"session_key": self.session_key, **options}
        return await self.registry.start(command, task_id=self.task_id, sandbox=self._sandbox, **options)

    def find(self, session_id: str) -> ProcessSession | None:
        """Return a process of this rollout."""
        return self.registry.get(self.task_id, session_id)

    async def list(self) -> dict[str, Any]:
        """Describe all processes of the rollout, oldest first."""
        sessions = self.registry.list(self.task_id)
        return {"processes": list(await asyncio.gather(*map(self._row, sessions)))}

    async def _row(self, session: ProcessSession) -> dict[str, Any]:
        await self._refresh(session)
        row = {
            "session_id": session.id,
            "command": session.command[:_LIST_COMMAND],
            "cwd": session.cwd,
            "pid": session.pid,
            "started_at": datetime.fromtimestamp(session.started_at).astimezone().isoformat(timespec="seconds"),
            "uptime_seconds": self._uptime(session),
            "status": session.status,
            "output_preview": await _tail(session, _LIST_PREVIEW),
        }
        return row | _end_of(session)

    def _uptime(self, session: ProcessSession) -> int:
        end = session.ended_at if session.ended_at is not None else self.registry.now()
        return int(end - session.started_at)

    async def _refresh(self, session: ProcessSession) -> None:
        # The sandbox knows of an end a moment before the follower does.
        if not session.exited:
            try:
                info = await session.source.poll(session.source_id)
            except ProcessLookupError:
                await self.registry.note_loss(session)
            else:
                await self._note(session, info)

    async def _note(self, session: ProcessSession, info: ProcessInfo) -> None:
        if not info.running:
            await self.registry.note_end(session, info.exit_code)

    async def poll(self, session: ProcessSession, *, consumer: str = "model") -> dict[str, Any]:
        """Return the state of the process, and its output since the last poll of this consumer."""
        await self._refresh(session)
        try:
            text, omitted = await session.news(consumer, _POLL_PREVIEW)
        except ProcessLookupError:
            text, omitted = "", 0
        answer = {
            "session_id": session.id,
            "command": session.command,
            "status": session.status,
            "pid": session.pid,
            "uptime_seconds": self._uptime(session),
            "output_preview": text,
        }
        if omitted:
            answer["output_note"] = f"{omitted} bytes of new output before this were omitted; use log to read them."
        return answer | _end_of(session)

    async def log(
        self, session: ProcessSession, *, offset: int = 0, limit: int = _LOG_LINES, from_start: bool = False
    ) -> dict[str, Any]:
        """Return lines of the output that is kept: the last `limit`, or `limit` lines that start at line `offset`.

        `offset` counts from 0; a negative one counts from the end. To start at line 0, pass `from_start`.
        """
        await self._refresh(session)
        try:
            text, lost = await session.read_tail()
        except ProcessLookupError:
            text, lost = "", 0
        lines = text.splitlines()
        if offset == 0 and not from_start:
            shown = lines[-limit:]
        else:
            begin = offset if offset >= 0 else max(0, len(lines) + offset)
            shown = lines[begin : begin + limit]
        answer = {
            "session_id": session.id,
            "status": session.status,
            "output": "\n".join(shown),
            "total_lines": len(lines),
            "showing": f"{len(shown)} lines",
        }
        if lost:
            answer["output_note"] = f"The first {lost} bytes of the output are not kept."
        return answer | ({"note": DETACHED_NOTE} if session.detached else {})

    async def wait(self, session: ProcessSession, *, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the process ends, the registry's limit is over, or `interrupt` is called."""
        limit = self.registry.wait_limit
        seconds = limit if timeout is None else min(timeout, limit)
        note = {}
        if timeout is not None and timeout > limit:
            note = {"timeout_note": f"The timeout of {timeout:g} s was reduced to the limit of {limit:g} s."}
        await self._refresh(session)
        if not session.exited:
            info = await self._wait(session, seconds)
            if info is None:
                return {"status": "interrupted", "output": await _tail(session, _WAIT_PREVIEW), **note}
            await self._note(session, info)
        if not session.exited:
            note.setdefault("timeout_note", f"Waited {seconds:g} s; the process is still running.")
            return {"status": "timeout", "output": await _tail(session, _WAIT_PREVIEW), **note}
        output = await _tail(session, _WAIT_OUTPUT)
        return {"status": "exited", "exit_code": session.exit_code, "output": output, **note} | _lost_note(session)

    async def _wait(self, session: ProcessSession, seconds: float) -> ProcessInfo | None:
        interruption = asyncio.ensure_future(self.registry.interruption(self.task_id).wait())
        waiting = asyncio.ensure_future(session.source.wait(session.source_id, timeout=seconds))
        try:
            await asyncio.wait((interruption, waiting), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            interruption.cancel()
            if waiting.cancel():
                await asyncio.wait((waiting,))

    async def kill(self, session: ProcessSession) -> dict[str, Any]:
        """Kill the process and everything it started, and return what was observed."""
        await self._refresh(session)
        if session.exited:
            return {"status": "already_exited", "exit_code": session.exit_code}
        info = await self.registry.kill(session, source="process.kill")
        if info.running:
            return {
                "status": "error",
                "error": f"Process {session.id} could not be killed; some of its processes still run.",
            }
        return {"status": "killed", "session_id": session.id, "exit_code": session.exit_code}

    async def write(self, session: ProcessSession, data: str) -> dict[str, Any]:
        """Write data to the input of the process, unchanged."""
        await self._refresh(session)
        if session.exited:
            return _already(session)
        if session.detached:
            return {"status": "error", "error": "A detached process no longer has an input."}
        try:
            content = data.encode()
        except UnicodeEncodeError as error:
            return {"status": "error", "error": f"data cannot contain the lone surrogate {data[error.start]!r}."}
        try:
            taken = await session.source.write(session.source_id, content)
        except BrokenPipeError:
            return {"status": "error", "error": "The process no longer reads its input (it is closed)."}
        answer: dict[str, Any] = {"status": "ok", "bytes_written": taken}
        if taken < len(content):
            answer["note"] = f"Only {taken} of {len(content)} bytes could be written; the rest was dropped."
        return answer

    async def submit(self, session: ProcessSession, data: str) -> dict[str, Any]:
        """Write a line to the input of the process, as the Enter key does."""
        return await self.write(session, data + "\n")

    async def close(self, session: ProcessSession) -> dict[str, Any]:
        """Close the input of the process."""
        await self._refresh(session)
        if session.exited:
            return _already(session)
        if session.detached:
            return {"status": "error", "error": "A detached process no longer has an input."}
        await session.source.close_stdin(session.source_id)
        return {"status": "ok", "message": "End of file sent." if session.pty else "stdin closed."}


def _already(session: ProcessSession) -> dict[str, Any]:
    return {"status": "already_exited", "error": "The process has ended.", "exit_code": session.exit_code}


def _end_of(session: ProcessSession) -> dict[str, Any]:
    fields: dict[str, Any] = {"exit_code": session.exit_code} if session.exited else {}
    fields |= _lost_note(session)
    if session.detached:
        fields |= {"detached": True, "note": DETACHED_NOTE}
    return fields


def _lost_note(session: ProcessSession) -> dict[str, Any]:
    if session.completion_reason != "lost":
        return {}
    return {"note": "The process was lost with its sandbox; its exit code is unknown."}


async def _tail(session: ProcessSession, characters: int) -> str:
    try:
        return await session.tail(characters)
    except ProcessLookupError:
        return ""  # it ended so long ago that the sandbox no longer knows it
