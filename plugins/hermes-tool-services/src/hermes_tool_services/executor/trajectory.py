"""One trajectory of an executor, from its first call to its release, after which it runs no more calls."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, cast, final

from hermes_tool_services.executor.tool_backend import ToolBackend
from hermes_tools.agent_tools import ToolResult

T = TypeVar("T")
_REMEMBERED: Final = 16
"""How many answers are kept for repeated calls."""


class ReleasedError(Exception):
    """The trajectory was released before the call was done."""


class CancelledCallError(Exception):
    """The call with this execution id was cancelled and is not run a second time."""


@final
class Trajectory:
    """A trajectory: its calls run one after another in its sandbox, independently of other trajectories.

    The first call that needs a sandbox opens it, so a trajectory that waits for a slot blocks no other. After `idle`
    seconds without a call, `forgotten` is called once; `gone` is called when the release has ended, successfully or
    not.
    """

    def __init__(
        self,
        trajectory_id: str,
        backend: ToolBackend,
        *,
        idle: float,
        forgotten: Callable[[str], None],
        gone: Callable[[str], None],
    ) -> None:
        self.id = trajectory_id
        self.waiting = 0
        self.slot: Any = None
        self._backend = backend
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: OrderedDict[str, _SharedCall] = OrderedDict()
        self._releasing: asyncio.Task[None] | None = None
        self._idle = idle
        self._forgotten = forgotten
        self._gone = gone
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def is_released(self) -> bool:
        """Whether the trajectory was released."""
        return self._releasing is not None

    @property
    def running(self) -> int:
        """The number of calls in progress, including waiting ones."""
        return len(self._tasks)

    async def call(self, execution_id: str | None, work: Callable[[], Coroutine[Any, Any, ToolResult]]) -> ToolResult:
        """Do the work once per execution id; when cancelled, end it before returning.

        Raises:
            ReleasedError: The trajectory was released before the work was done.
            CancelledCallError: A call with this id was cancelled before.
        """
        known = None if execution_id is None else self._calls.get(execution_id)
        if known is None:
            known = _SharedCall(self._begin(work()))
            if execution_id is not None:
                self._remember(execution_id, known)
        try:
            return cast("ToolResult", await known.answer())
        except asyncio.CancelledError:
            if known.task.cancelled() and not _is_being_cancelled():
                raise (ReleasedError if self.is_released else CancelledCallError)(self.id) from None
            raise

    async def use(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Use the open sandbox outside the order of calls; raises `ReleasedError`."""
        if self.is_released:
            raise ReleasedError(self.id)
        known = _SharedCall(self._begin(work(self.slot)))
        try:
            return cast("T", await known.answer())
        except asyncio.CancelledError:
            if known.task.cancelled() and not _is_being_cancelled():
                raise ReleasedError(self.id) from None
            raise

    async def in_turn(self, work: Callable[[Any], Awaitable[ToolResult]]) -> ToolResult:
        """Wait for earlier calls and for a sandbox, then do the work in it."""
        self.waiting += 1
        try:
            await self._turn.acquire()
            try:
                await self._settle()
            except BaseException:
                self._turn.release()
                raise
        finally:
            self.waiting -= 1
        try:
            return await work(self.slot)
        finally:
            self._turn.release()

    async def _settle(self) -> None:
        if self.slot is not None:
            return
        try:
            self.slot = await self._backend.acquire(self.id)
        except Exception:
            # Nothing was run: a repeated call must not get this as its answer.
            mine = asyncio.current_task()
            self._calls = OrderedDict((name, call) for name, call in self._calls.items() if call.task is not mine)
            raise

    async def release(self) -> None:
        """End running calls, refuse waiting ones, give the sandbox back; a second caller waits for the same release."""
        if self._releasing is None:
            self._releasing = asyncio.ensure_future(self._release())
            # Also if the caller of the release does not wait for its end.
            self._releasing.add_done_callback(lambda _: self._gone(self.id))
        await asyncio.shield(self._releasing)

    async def _release(self) -> None:
        self._rest()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        slot, self.slot = self.slot, None
        if slot is not None:
            await self._backend.release(slot, reset_workspace=True)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        self._rest()
        task.add_done_callback(self._discard_task)
        return task

    def _discard_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks and not self.is_released:
            self._alarm = asyncio.get_running_loop().call_later(self._idle, self._forgotten, self.id)

    def _rest(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _remember(self, execution_id: str, call: _SharedCall) -> None:
        self._calls[execution_id] = call
        while len(self._calls) > _REMEMBERED and next(iter(self._calls.values())).task.done():
            self._calls.popitem(last=False)


@final
class _SharedCall:
    """A call with several waiters; it is ended when the last waiter leaves."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self._waiters = 0

    async def answer(self) -> Any:
        self._waiters += 1
        try:
            await asyncio.wait((self.task,))
        except asyncio.CancelledError:
            if self._waiters == 1 and not self.task.done():
                self.task.cancel()
                await _await_end(self.task)
            raise
        finally:
            self._waiters -= 1
        return await self.task


async def _await_end(task: asyncio.Task[Any]) -> None:
    """Wait for the end of a cancelled task, despite further cancellations."""
    waiting = asyncio.ensure_future(asyncio.wait((task,)))
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # mark the exception as retrieved; the cancellation takes precedence


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
