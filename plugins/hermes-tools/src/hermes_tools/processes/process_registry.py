"""Registry of the background processes of a runtime. A rollout reaches only its own processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from hermes_core.contracts.errors import BackendError, HermesError, OutputError, ProcessLimitError, SandboxLostError
from hermes_core.contracts.events import ProcessUpdated
from hermes_core.contracts.sandbox import ProcessInfo, Sandbox
from hermes_tools.processes.detached_process import DetachedProcess
from hermes_tools.processes.process_checkpoint import Checkpoint, start_of, still_runs
from hermes_tools.processes.process_session import CompletionReason, PidScope, ProcessSession
from hermes_tools.processes.process_watch import MIN_CHECK_INTERVAL, MatchLimit, Watch

MAX_PROCESSES: Final = 64
FINISHED_TTL_SECONDS: Final = 1800.0
_EVENT_CHARS: Final = 1000
_WATCHED_CHARS: Final = 64 * _EVENT_CHARS
_PATTERN_LOOK: Final = 1.0
_BUSY_LOOK: Final = 0.25
"""Seconds that each watched process adds to the pause of a process whose output filled the last look. Without it, 64
such processes would keep the event loop busy."""
_LAST_WORDS: Final = 5.0
_MAX_FAILURES: Final = 3
"""Failed polls in a row after which a process counts as lost; a single one can be a transport error."""


def _ignore(_event: ProcessUpdated) -> None:
    """Drop the event."""


class ProcessRegistry:
    """Background processes of one runtime and its event loop. A process is found by its rollout and its id together.

    Args:
        checkpoint: File that records the running processes, for this run only; None for no checkpoint.
        wait_limit: Seconds that a single `wait` may take.
        fire: Receives the events.
        listens: Returns whether any plugin receives the events; if none does, no output is read for them.
        clock: Returns the time in seconds since the epoch.
        min_check_interval: Shortest check interval in seconds; shorter ones are raised to it.
    """

    def __init__(
        self,
        *,
        checkpoint: Path | None = None,
        wait_limit: float = 180.0,
        fire: Callable[[ProcessUpdated], None] = _ignore,
        listens: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        min_check_interval: float = MIN_CHECK_INTERVAL,
    ) -> None:
        self.wait_limit = wait_limit
        self.min_check_interval = min_check_interval
        self._fire = fire
        self._listens = listens
        self._clock = clock
        self._sessions: dict[str, dict[str, ProcessSession]] = {}
        self._starting: dict[str, int] = {}
        self._followers: dict[ProcessSession, asyncio.Task[None]] = {}
        self._interrupts: dict[str, asyncio.Event] = {}
        self._matches = MatchLimit(clock)
        self._watched = 0
        self._checkpoint = None if checkpoint is None else Checkpoint(checkpoint, self._running)

    def now(self) -> float:
        """Return the current time of the registry's clock."""
        return self._clock()

    async def start(
        self,
        command: str,
        *,
        task_id: str,
        sandbox: Sandbox,
        session_key: str = "",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        check_interval: float | None = None,
        notify_on_complete: bool = False,
        watch_patterns: Sequence[str] = (),
    ) -> ProcessSession:
        """Start a command in a rollout's sandbox. If it cannot be started, the registry does not list it.

        `notify_on_complete` replaces `watch_patterns`: one notification is enough.

        Raises:
            ProcessLimitError: The rollout already runs the maximum number of processes.
        """
        busy = self._starting.get(task_id, 0)
        if busy + len(self._running(task_id)) >= MAX_PROCESSES:
            raise ProcessLimitError(f"{MAX_PROCESSES} background processes are running already", hint="end one of them")
        self._starting[task_id] = busy + 1
        try:
            info = await sandbox.processes.start(command, cwd=cwd, env=env, pty=pty)
        finally:
            self._starting[task_id] -= 1
            if not self._starting[task_id]:
                del self._starting[task_id]
        scope: PidScope = "host" if _is_of_this_host(sandbox) else "sandbox"
        session = ProcessSession(
            id=f"proc_{uuid.uuid4().hex[:12]}",
            command=command,
            task_id=task_id,
            session_key=session_key,
            pid=info.pid,
            cwd=info.cwd,
            started_at=self._clock(),
            source=sandbox.processes,
            source_id=info.id,
            pty=pty,
            pid_scope=scope,
            pid_start=start_of(info.pid) if scope == "host" else None,
            sandbox_id=sandbox.id,
            check_interval=None if check_interval is None else max(check_interval, self.min_check_interval),
            notify_on_complete=notify_on_complete,
            watch_patterns=() if notify_on_complete else tuple(filter(None, watch_patterns)),
        )
        self._enlist(session)
        try:
            await self._save()
        except BaseException:
            # The caller gets no id, so it could not kill the process.
            await self.kill(session, source="failed_start")
            raise
        return session

    def _enlist(self, session: ProcessSession) -> None:
        self._sessions.setdefault(session.task_id, {})[session.id] = session
        self._touch()
        follower = self._followers[session] = asyncio.get_running_loop().create_task(self._follow(session))
        follower.add_done_callback(lambda _task: self._followers.pop(session, None))

    def _touch(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.touch()

    async def _save(self) -> None:
        if self._checkpoint is not None:
            await self._checkpoint.save()

    def get(self, task_id: str, session_id: str) -> ProcessSession | None:
        """Return the process with this id, or None if this rollout has none."""
        self._prune(task_id)
        return self._sessions.get(task_id, {}).get(session_id)

    def list(self, task_id: str) -> list[ProcessSession]:
        """Return the rollout's processes, oldest first: those that run, and those that ended in the last 30 min."""
        self._prune(task_id)
        return list(self._sessions.get(task_id, {}).values())

    def _prune(self, task_id: str) -> None:
        sessions = self._sessions.get(task_id, {})
        ended = [session for session in sessions.values() if session.ended_at is not None]
        ended.sort(key=lambda session: session.ended_at or 0.0)
        oldest = self._clock() - FINISHED_TTL_SECONDS
        surplus = len(ended) - MAX_PROCESSES
        for index, session in enumerate(ended):
            if index < surplus or (session.ended_at or 0.0) < oldest:
                del sessions[session.id]

    def _running(self, task_id: str | None = None) -> tuple[ProcessSession, ...]:
        groups = self._sessions.values() if task_id is None else [self._sessions.get(task_id, {})]
        return tuple(session for group in groups for session in group.values() if not session.exited)

    def has_active_processes(self, task_id: str) -> bool:
        """Return whether a process of the rollout is running. If so, its sandbox is not idle."""
        return bool(self._running(task_id))

    def has_active_for_session(self, session_key: str) -> bool:
        """Return whether a process started with this session key is running, in any rollout."""
        return any(session.session_key == session_key for session in self._running())

    async def kill(self, session: ProcessSession, *, source: str, grace: float = 2.0) -> ProcessInfo:
        """Kill a process and everything it started. Return what was observed."""
        session.termination_source = source
        info = await session.source.kill(session.source_id, grace=grace)
        if info.running:
            session.termination_source = None
        else:
            await self.note_end(session, info.exit_code)
        return info

    async def kill_all(self, task_id: str | None = None) -> int:
        """Kill all running processes of a rollout, or of all rollouts. Return how many are known to have ended."""
        kills = (self.kill(session, source="kill_all") for session in self._running(task_id))
        results = await asyncio.gather(*kills, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, (HermesError, ProcessLookupError)):
                raise result
        return sum(isinstance(result, ProcessInfo) and not result.running for result in results)

    async def note_end(self, session: ProcessSession, exit_code: int | None) -> None:
        """Record that a process has ended. Its follower may already have recorded it."""
        await self._end(session, "exited", exit_code)

    async def note_loss(self, session: ProcessSession) -> None:
        """Record that the sandbox no longer knows the process, for example after the sandbox was renewed."""
        await self._end(session, "lost", None)

    async def _end(self, session: ProcessSession, reason: CompletionReason, exit_code: int | None) -> None:
        first = session.end(reason, exit_code, self._clock())
        if first:
            self._touch()
        try:
            await self._save()
        finally:
            if first:
                await self._emit(session, "ended")

    def interruption(self, task_id: str) -> asyncio.Event:
        """Return the event that `interrupt` sets to end the current waits of the rollout."""
        return self._interrupts.setdefault(task_id, asyncio.Event())

    def interrupt(self, task_id: str) -> None:
        """End all current waits of the rollout. The processes keep running."""
        event = self._interrupts.pop(task_id, None)
        if event is not None:
            event.set()

    async def _follow(self, session: ProcessSession) -> None:
        """Wait until one process ends, and send its events until then."""
        watch = Watch(session.watch_patterns, self._matches, self._clock)
        # An error of the checkpoint is ignored here: the next start of a process raises it to its caller.
        self._watched += bool(watch.patterns)
        try:
            with contextlib.suppress(OutputError):
                await self._emit(session, "started")
                reason, exit_code = await self._until_end(session, watch)
                await self._end(session, reason, exit_code)
        finally:
            self._watched -= bool(watch.patterns)

    async def _until_end(self, session: ProcessSession, watch: Watch) -> tuple[CompletionReason, int | None]:
        failures, seen = 0, 0
        last = self._clock()
        while True:
            try:
                info = await session.source.wait(session.source_id, timeout=self._pause(session, watch, seen))
                seen = await self._look(session, watch)
            except (ProcessLookupError, SandboxLostError):
                return "lost", None
            except BackendError:
                failures += 1
                if failures == _MAX_FAILURES:
                    return "lost", None
                await asyncio.sleep(failures)
                continue
            failures = 0
            if not info.running:
                return "exited", info.exit_code
            if session.check_interval is not None and self._clock() - last >= session.check_interval:
                last = self._clock()
                await self._emit(session, "interval")

    def _pause(self, session: ProcessSession, watch: Watch, seen: int) -> float | None:
        if watch.patterns and not watch.is_muted:
            return _PATTERN_LOOK + _BUSY_LOOK * self._watched * seen / _WATCHED_CHARS
        return session.check_interval

    async def _look(self, session: ProcessSession, watch: Watch) -> int:
        """Search the new output for the patterns, and return its length in characters."""
        if not watch.patterns or watch.is_muted:
            return 0
        text, _ = await session.news("watch", _WATCHED_CHARS)
        found = watch.match(text)
        if found is not None:
            await self._emit(session, "match", pattern=found)
        session.notify_on_complete |= watch.is_muted
        return len(text)

    async def _emit(
        self,
        session: ProcessSession,
        moment: Literal["started", "interval", "match", "ended"],
        *,
        pattern: str | None = None,
    ) -> None:
        event = ProcessUpdated(
            rollout_id=session.task_id,
            process_id=session.id,
            session_key=session.session_key,
            command=session.command,
            moment=moment,
            running=not session.exited,
            exit_code=session.exit_code,
            reason=session.completion_reason,
            seconds=self._clock() - session.started_at,
            output="",
            pattern=pattern,
            notify=session.notify_on_complete,
        )
        try:
            if moment != "started" and self._listens():
                output, _ = await session.news("events", _EVENT_CHARS)
                event = dataclasses.replace(event, output=output)
        except (ProcessLookupError, HermesError):
            pass  # the event is also sent if the sandbox is lost, but without output
        finally:
            self._fire(event)

    async def recover_from_checkpoint(self) -> int:
        """Add the processes that an earlier run with this checkpoint left running, as detached. Return their number.

        A process inside a sandbox ended with the sandbox, or the sandbox is removed by its lease (`hermes-core
        sandboxes gc`).
        """
        if self._checkpoint is None:
            return 0
        alive = [written for written in await self._checkpoint.load() if still_runs(written)]
        self._touch()
        for written in alive:
            fields = {name: written[name] for name in ("pid", "command", "cwd", "started_at")}
            self._enlist(
                ProcessSession(
                    id=written["session_id"],
                    task_id=written["task_id"],
                    session_key=written["session_key"],
                    source=DetachedProcess(**fields, start=written["start_time"]),
                    source_id=str(written["pid"]),
                    detached=True,
                    pid_scope="host",
                    pid_start=written["start_time"],
                    sandbox_id=written["sandbox_id"],
                    **fields,
                )
            )
        await self._save()
        return len(alive)

    async def release(self, task_id: str, sandbox_id: str | None = None) -> None:
        """Forget the processes of a rollout or of one of its sandboxes, which the caller is about to close."""
        sessions = self._sessions.get(task_id, {})
        leaving = [one for one in sessions.values() if sandbox_id is None or one.sandbox_id == sandbox_id]
        running = [session for session in leaving if not session.exited]
        await self._stop_following(leaving)
        for session in leaving:
            sessions.pop(session.id, None)
        if not sessions:
            self._sessions.pop(task_id, None)
            self.interrupt(task_id)
        if leaving:
            self._touch()
        for session in running:
            session.termination_source = session.termination_source or "rollout_end"
            if session.end("exited", None, self._clock()):
                await self._emit(session, "ended")
        # An error of the checkpoint is ignored here: a start has raised it already, and the rollout must still end.
        with contextlib.suppress(OutputError):
            await self._save()

    async def _stop_following(self, sessions: Iterable[ProcessSession]) -> None:
        followers = {one: self._followers[one] for one in list(sessions) if one in self._followers}
        # A follower that has just seen the end of its process still sends the event.
        telling = [task for session, task in followers.items() if session.exited]
        if telling:
            await asyncio.wait(telling, timeout=_LAST_WORDS)
        for task in followers.values():
            task.cancel()
        if followers:
            await asyncio.wait(followers.values())

    async def aclose(self) -> None:
        """Stop following all processes. The checkpoint stays as it is."""
        await self._stop_following(self._followers)


def _is_of_this_host(sandbox: Sandbox) -> bool:
    return sandbox.provenance.get("backend") == "local" and sandbox.provenance.get("isolation") == "none"
