"""Lets a coroutine call coroutine functions without `await`, on the same event loop and without blocking it.

The coroutine runs inside a greenlet. A call that has to wait switches to the greenlet of the event loop, which awaits
it there like anything else and switches back with the answer; to the caller it looks like an ordinary call. What the
coroutine itself awaits is passed on to the event loop unchanged. So one task stays one task: cancellation, timeouts,
context variables and tracebacks are what they would be with `await` written out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

T = TypeVar("T")


async def bridged(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in which a `ToolContext`'s methods may be called without `await`.

    An environment's `compute_reward` is run this way. A task that it starts itself is not: wrap what goes into
    `asyncio.gather` or `create_task` where it calls without `await`.
    """
    return await _Bridged(coroutine)


def can_wait() -> bool:
    """Tell whether the caller runs inside `bridged`, in its very task, so that `wait` works."""
    runner = getcurrent()
    return isinstance(runner, _Runner) and runner.task is asyncio.current_task()


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for something without `await`; only where `can_wait()`. Raises what it raises, and cancellation."""
    return cast("T", _switch_out(_Step(awaitable, is_call=True)))


@dataclass(frozen=True, slots=True)
class _Step:
    """What a runner asks its driver for: to await a call's awaitable, or to pass on what the coroutine awaits."""

    value: Any
    is_call: bool = False


class _Runner(greenlet):
    """The greenlet that a coroutine runs in."""

    task: asyncio.Task[Any] | None


def _switch_out(step: _Step) -> Any:
    driver = getcurrent().parent
    assert driver is not None
    return driver.switch(step)


class _Bridged(Generic[T]):
    """Awaits a coroutine from inside a greenlet; the generator below runs in the event loop's own."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        runner = _Runner(self._run)
        runner.task = asyncio.current_task()
        # A greenlet begins with no context variables; the task's own context makes what is set visible outside, too.
        runner.gr_context = getcurrent().gr_context
        step = runner.switch()
        while not runner.dead:
            failure: BaseException | None = None
            answer: Any = None
            try:
                answer = (yield from step.value.__await__()) if step.is_call else (yield step.value)
            except BaseException as error:  # noqa: BLE001 - whatever it is, cancellation too: it belongs to the caller
                failure = error
            if failure is None:
                step = runner.switch(answer)
            else:  # with the traceback, which greenlet leaves out of its own accord
                step = runner.throw(type(failure), failure, failure.__traceback__)
        return cast("T", step)

    def _run(self) -> T:
        """Take the coroutine through its steps; its exceptions reach the driver by themselves."""
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                awaited = self._coroutine.send(answer) if failure is None else self._coroutine.throw(failure)
            except StopIteration as end:
                return cast("T", end.value)
            answer, failure = None, None
            try:
                answer = _switch_out(_Step(awaited))
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, which waits for it
                failure = error
