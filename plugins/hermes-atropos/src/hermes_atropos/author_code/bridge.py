"""Let a coroutine call coroutine functions without `await`, on the same event loop and without blocking it.

The coroutine runs inside a greenlet. A call that has to wait switches to the greenlet of the event loop, which awaits
it and switches back with the result; to the caller it looks like an ordinary call. Awaits of the coroutine itself are
passed on to the event loop unchanged. So it remains one task: cancellation, timeouts, context variables and tracebacks
are the same as with an explicit `await`. Tasks that the coroutine starts (`asyncio.gather`, `wait_for`, `create_task`)
run in separate greenlets.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from hermes_core.contracts.errors import UnavailableComponentError

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise UnavailableComponentError(
        f"the Atropos environments need greenlet, which cannot be imported: {error}",
        hint="pip install hermes-atropos",
    ) from error

T = TypeVar("T")


def bridge_coroutine(coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Wrap a coroutine so that a `ToolContext`'s methods may be called in it without `await`.

    An environment's `compute_reward` and the tasks it starts run this way. A task started elsewhere (a callback, an
    earlier task) does not: wrap its coroutines.
    """
    return _Bridged(coroutine)


def can_wait() -> bool:
    """Return whether the caller runs inside `bridge_coroutine`, in the same task, so that `wait` works."""
    runner = getcurrent()
    return isinstance(runner, _Runner) and runner.task is asyncio.current_task()


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable without `await`; only if `can_wait()`. Raises its errors, and cancellation."""
    return cast("T", _switch_out(_Step(awaitable, is_call=True)))


@dataclass(frozen=True, slots=True)
class _Step:
    """A request of a runner to its driver: await a call's awaitable, or pass on an await of the coroutine."""

    value: Any
    is_call: bool = False


class _Runner(greenlet):
    """The greenlet of a coroutine."""

    task: asyncio.Task[Any] | None


def _switch_out(step: _Step) -> Any:
    driver = getcurrent().parent
    assert driver is not None
    return driver.switch(step)


class _Bridged(Coroutine[Any, Any, T]):
    """Drives a coroutine in a greenlet; the generator below runs in the event loop's greenlet."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._steps: Generator[Any, Any, T] | None = None

    def send(self, value: Any) -> Any:
        """Take a step, as a coroutine does."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise inside, as a coroutine does."""
        if self._steps is None:
            self._steps = self.__await__()
            self._coroutine.close()  # cancelled before the start
        return self._steps.throw(*error)

    def close(self) -> None:
        """End it, as a coroutine does."""
        if self._steps is not None:
            self._steps.close()
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        runner = _Runner(self._run)
        runner.task = asyncio.current_task()
        # A greenlet starts without context variables; with the task's own context, changes are also visible outside.
        runner.gr_context = getcurrent().gr_context
        with _children_bridged(asyncio.get_running_loop()):
            step = runner.switch()
            while not runner.dead:
                failure: BaseException | None = None
                answer: Any = None
                try:
                    answer = (yield from step.value.__await__()) if step.is_call else (yield step.value)
                except BaseException as error:  # noqa: BLE001 - whatever it is, cancellation too: it is the caller's
                    failure = error
                runner.parent = getcurrent()  # may differ from the first parent when a task's first step runs eagerly
                if failure is None:
                    step = runner.switch(answer)
                else:  # with the traceback, which greenlet would drop
                    step = runner.throw(type(failure), failure, failure.__traceback__)
        return cast("T", step)

    def _run(self) -> T:
        """Step through the coroutine; its exceptions propagate to the driver."""
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


@contextmanager
def _children_bridged(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make the event loop bridge tasks that bridged code starts, while such code runs."""
    found: Any = loop.get_task_factory()
    factory = found if isinstance(found, _TaskFactory) else _TaskFactory(found)
    loop.set_task_factory(factory)
    factory.users += 1
    try:
        yield
    finally:
        factory.users -= 1
        now: Any = loop.get_task_factory()
        if not factory.users and now is factory:
            loop.set_task_factory(factory.previous)


class _TaskFactory:
    """Creates tasks with the previous factory; only tasks started by bridged code are bridged too."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if can_wait() and inspect.iscoroutine(coroutine):
            coroutine = _Bridged(coroutine)
        if self.previous is not None:
            return self.previous(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)
