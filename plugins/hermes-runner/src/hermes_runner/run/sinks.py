"""Feed the sinks, each in its own thread: a sink that hangs delays neither the run nor the other sinks."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hermes_core.contracts.errors import OutputError, UserError
from hermes_core.contracts.events import Sink, SummarySink
from hermes_core.rollout import PluginEscapeError, WorkerThreads, guard_plugin_call

_WAITING = 1000  # outcomes that a slow sink may have in its queue before the run waits for it


class SinkFeed:
    """Hands outcomes and the summary to one sink, in order. After a call that took too long it gets no more.

    Each call may take `limit` seconds, the one with the summary `summary_limit`.
    """

    def __init__(
        self, name: str, sink: Sink, errors: Counter[str], *, limit: float, summary_limit: float = 600.0
    ) -> None:
        self._name = name
        self._sink = sink
        self._errors = errors
        self._limit = limit
        self._summary_limit = summary_limit
        self._threads = WorkerThreads(2)  # a key gets half of the threads: one
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_stuck = False
        self._left_behind: str | None = None
        self._opening = threading.Lock()  # between the thread that opens the sink and the task that waits for it
        self._is_open = self._is_given_up = False
        self._consumer: asyncio.Task[None] | None = None
        self._is_ending = False

    async def open(self, folder: str) -> None:
        """Open the sink; raises `UserError` if that fails."""
        deadline = asyncio.timeout(self._limit)
        try:
            async with deadline:
                await self._run(partial(self._open, folder))
        except Exception as error:  # the plugin boundary: whatever the sink raises, the run does not begin
            what = f"it took more than {self._limit:g} s" if deadline.expired() else f"{type(error).__name__}: {error}"
            raise UserError(f"sink {self._name!r} cannot begin: {what}") from error
        finally:
            with self._opening:
                self._is_given_up = not self._is_open
        self._consumer = asyncio.create_task(self._consume())

    def _open(self, folder: str) -> None:
        """Open the sink, and close it again if the run stopped waiting in the meantime."""
        self._sink.open(folder)
        with self._opening:
            self._is_open = not self._is_given_up
        if not self._is_open:
            self._sink.close()

    def put(self, line: bytes) -> None:
        """Queue one outcome, as its line of `rollouts.jsonl`; never waits, so no cancellation can lose it."""
        self._queue.put_nowait(line)
        if self._queue.qsize() >= _WAITING:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Wait while the queue is full."""
        await self._has_room.wait()

    async def drain(self) -> None:
        """Wait until the sink has got the last outcome; none is put afterwards. A cancelled wait can be repeated."""
        if self._consumer is None or self._consumer.done():
            return
        if not self._is_ending:
            self._is_ending = True
            self._queue.put_nowait(None)
        await asyncio.wait((self._consumer,))

    async def write_summary(self, summary: Mapping[str, Any]) -> str | None:
        """Hand a copy of the summary to a sink that wants it; returns what went wrong, but raises an `OutputError`.

        Both texts begin with the name of the sink.
        """
        if self._is_stuck or not isinstance(self._sink, SummarySink):
            return None
        write = self._sink.write_summary
        try:
            return await self._call(
                lambda: write(copy.deepcopy(summary)),
                "was not waited for, with the summary",
                limit=self._summary_limit,
                raises=OutputError,
            )
        except OutputError as error:
            raise OutputError(f"{self._name}: {error.message}", hint=error.hint) from error

    async def close(self) -> str | None:
        """Wait for the last outcomes, then close the sink unless it is stuck; returns what went wrong, or None.

        A sink that was interrupted before it got all outcomes is closed all the same.
        """
        try:
            await self.drain()
            if self._is_stuck or not self._is_open:
                return self._left_behind
            return await self._call(self._sink.close, "was not closed", limit=self._limit) or self._missing_error()
        finally:
            if self._consumer is not None:
                self._consumer.cancel()
            self._threads.close()

    @property
    def unclosed_error(self) -> str:
        """The warning about a sink whose last call the run no longer waits for."""
        return f"{self._name}: was not closed, because the run was ended before it had taken everything"

    def _missing_error(self) -> str | None:
        """Return the warning about outcomes that are still in the queue."""
        missing = self._queue.qsize() - self._is_ending
        if missing <= 0:
            return None
        return f"{self._name}: did not get the last {missing} outcomes, because the run was ended"

    async def _consume(self) -> None:
        while (line := await self._queue.get()) is not None:
            if self._queue.qsize() < _WAITING:
                self._has_room.set()
            if self._is_stuck:
                continue
            trouble = await self._call(partial(self._write, line), "was fed no more", limit=self._limit)
            if trouble is not None:
                self._errors[trouble] += 1

    def _write(self, line: bytes) -> None:
        """Give the sink its own copy of an outcome: one that changes it changes it for no other sink."""
        self._sink.write(json.loads(line))

    async def _run(self, action: Callable[[], None]) -> None:
        await guard_plugin_call(self._threads.run("sink", partial(_contain, action)))

    async def _call(
        self,
        action: Callable[[], None],
        consequence: str,
        *,
        limit: float,
        raises: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> str | None:
        """Call the sink; returns what went wrong, with the `consequence` if it took too long."""
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                await self._run(action)
        except raises:
            raise
        except asyncio.CancelledError:
            self._is_stuck = True  # its thread is still in this call, and its calls run one after another
            self._left_behind = self.unclosed_error
            raise
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a sink must not cost a rollout
            self._is_stuck = deadline.expired()  # the sink itself may also raise a `TimeoutError`
            what = (
                f"took more than {limit:g} s and {consequence}"
                if self._is_stuck
                else f"{type(error).__name__}: {error}"
            )
            return f"{self._name}: {what}"
        return None


def _contain(action: Callable[[], None]) -> None:
    """Call the sink in its thread; what is no `Exception` is raised as one.

    Python delivers Ctrl-C and cancellations elsewhere, so here a `KeyboardInterrupt` or `CancelledError` is the
    sink's own error and must not end the run.
    """
    try:
        action()
    except Exception:
        raise
    except BaseException as error:  # the plugin boundary
        raise PluginEscapeError(f"{type(error).__name__}: {error}") from error
