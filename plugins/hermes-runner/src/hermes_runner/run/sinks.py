"""Feeds the sinks: each in a thread of its own, so that one that hangs holds up neither the run nor the others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hermes_core.contracts.errors import OutputError, UserError
from hermes_core.contracts.events import Sink, SummarySink
from hermes_core.rollout import WorkerThreads, guard_plugin_call

_WAITING = 1000  # outcomes a slow sink may lag behind before it slows the run


class SinkFeed:
    """Hands outcomes and the summary to one sink in order. After a call that took too long it is fed no more.

    A call may take `limit` seconds, that with the summary `summary_limit`.
    """

    def __init__(
        self, name: str, sink: Sink, errors: Counter[str], *, limit: float, summary_limit: float = 600.0
    ) -> None:
        self._name = name
        self._sink = sink
        self._errors = errors
        self._limit = limit
        self._summary_limit = summary_limit
        self._threads = WorkerThreads(2)  # half of them for one key: one
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(_WAITING)
        self._is_stuck = False
        self._left_behind: str | None = None
        self._opening = threading.Lock()  # between the thread that opens it and who waits for that
        self._is_open = self._is_given_up = False
        self._consumer: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def open(self, folder: str) -> None:
        """Begin; a sink that cannot is the user's to mend."""
        deadline = asyncio.timeout(self._limit)
        try:
            async with deadline:
                await guard_plugin_call(self._threads.run("sink", partial(self._open, folder)))
        except Exception as error:  # the plugin boundary: whatever it raises, the run does not begin
            what = f"it took more than {self._limit:g} s" if deadline.expired() else f"{type(error).__name__}: {error}"
            raise UserError(f"sink {self._name!r} cannot begin: {what}") from error
        finally:
            with self._opening:
                self._is_given_up = not self._is_open
        self._consumer = asyncio.create_task(self._consume())

    def _open(self, folder: str) -> None:
        """Open the sink, and close it again if that took so long that nobody waits for it any more."""
        self._sink.open(folder)
        with self._opening:
            self._is_open = not self._is_given_up
        if not self._is_open:
            self._sink.close()

    async def put(self, outcome: Mapping[str, Any]) -> None:
        """Queue one outcome."""
        await self._queue.put(outcome)

    async def drain(self) -> None:
        """Wait until the sink has had the last outcome; none is put afterwards. A cancelled wait can be repeated."""
        if self._consumer is None or self._consumer.done():
            return
        if self._ending is None:
            self._ending = asyncio.create_task(self._queue.put(None))
        await asyncio.wait((self._consumer,))
        self._ending.cancel()  # a consumer that was ended takes nothing more

    async def write_summary(self, summary: Mapping[str, Any]) -> str | None:
        """Hand over the summary, where the sink wants it; returns what went wrong, and raises an `OutputError`."""
        if self._is_stuck or not isinstance(self._sink, SummarySink):
            return None
        action = partial(self._sink.write_summary, summary)
        return await self._call(
            action, "was not waited for, with the summary", limit=self._summary_limit, raises=OutputError
        )

    async def close(self) -> str | None:
        """Wait for the last outcomes, then close the sink; a stuck one is left behind. Returns why it is not closed."""
        try:
            await self.drain()
            if self._is_stuck or not self._is_open:
                return self._left_behind
            return await self._call(self._sink.close, "was not closed", limit=self._limit)
        finally:
            for task in (self._consumer, self._ending):
                if task is not None:
                    task.cancel()
            self._threads.close()

    @property
    def unclosed_error(self) -> str:
        """What to tell of a sink whose last call nobody waits for any more."""
        return f"{self._name}: was not closed, because the run was ended before it had taken everything"

    async def _consume(self) -> None:
        while (outcome := await self._queue.get()) is not None:
            if self._is_stuck:
                continue
            trouble = await self._call(partial(self._sink.write, outcome), "was fed no more", limit=self._limit)
            if trouble is not None:
                self._errors[trouble] += 1

    async def _call(
        self,
        action: Callable[[], None],
        consequence: str,
        *,
        limit: float,
        raises: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> str | None:
        """Have the sink do something; returns what went wrong, with the `consequence` of taking too long."""
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                await guard_plugin_call(self._threads.run("sink", action))
        except raises:
            raise
        except asyncio.CancelledError:
            self._is_stuck = True  # its thread is still in this call, and its calls run one after another
            self._left_behind = self.unclosed_error
            raise
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a sink must not cost a rollout
            self._is_stuck = deadline.expired()  # a sink may raise a `TimeoutError` of its own
            what = (
                f"took more than {limit:g} s and {consequence}"
                if self._is_stuck
                else f"{type(error).__name__}: {error}"
            )
            return f"{self._name}: {what}"
        return None
