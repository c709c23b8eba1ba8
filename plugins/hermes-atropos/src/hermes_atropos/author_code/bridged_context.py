"""The `ToolContext` of an `async def compute_reward`: its methods are called as the predecessor's were, or awaited.

Inside `compute_reward` a call of one of the predecessor's methods returns when it has its answer, a dictionary, list or
text that may be awaited as well. Where that cannot be (in a task that is not of its making, and for the methods that
the predecessor had not) it returns something to be awaited, and nothing is done until then.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NoReturn

from hermes_atropos.author_code.author_context import AuthorContext
from hermes_atropos.author_code.bridge import bridged, can_wait, wait
from hermes_core.contracts.errors import VerifierError
from hermes_core.rollout import SyncToolContext

CALLED: Final = frozenset(
    {
        "terminal", "read_file", "write_file", "search", "web_search", "web_extract", "browser_navigate",
        "browser_snapshot", "call_tool", "cleanup", "upload_file", "upload_dir", "download_file", "download_dir",
    }
)  # fmt: skip
"""The predecessor's methods, which need no `await`."""


async def reward_of(compute: Callable[..., Any], item: Any, result: Any, context: AuthorContext) -> Any:
    """Call an environment's `async def compute_reward` with a context that serves old code and new.

    A call that was never awaited where it had to be is a `VerifierError`, though the function came to an end: what it
    judged by has not happened.
    """
    handle = BridgedContext(context)
    try:
        value = await bridged(compute(item, result, handle))
        handle.require_awaited()
        return value
    finally:
        handle.discard()


class BridgedContext:
    """One rollout's `ToolContext` for code in any style.

    Called in `compute_reward` or a task that it started: the answer, awaitable. Called in another task: to be awaited.
    Called in a worker thread (`asyncio.to_thread`): the answer. `asynchronous` is the plain asynchronous context, for
    `asyncio.gather(ctx.asynchronous.terminal("a"), ctx.asynchronous.terminal("b"))`.
    """

    def __init__(self, context: AuthorContext) -> None:
        self.asynchronous = context
        self._threaded = SyncToolContext(context)
        self._loop_thread = threading.get_ident()
        self._deferred: list[Deferred] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.asynchronous, name)
        if not asyncio.iscoroutinefunction(value):
            return value
        return functools.wraps(value)(functools.partial(self._call, name))

    def require_awaited(self) -> None:
        """Raise a `VerifierError` if a call was left without its `await`."""
        left = [call for call in self._deferred if not call.started]
        if left:
            left[0].refuse("was never awaited, so it was not done")

    def discard(self) -> None:
        """Forget what was never awaited."""
        for call in self._deferred:
            call.close()
        self._deferred.clear()

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._loop_thread:
            return getattr(self._threaded, name)(*args, **kwargs)
        method = getattr(self.asynchronous, name)
        if name in CALLED and can_wait():
            return awaitable_answer(wait(method(*args, **kwargs)))
        deferred = Deferred(name, method(*args, **kwargs))
        self._deferred.append(deferred)
        return deferred


class Deferred(Coroutine[Any, Any, Any]):
    """A call that waits for its `await`; used as an answer it says so."""

    def __init__(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._name = name
        self._coroutine = coroutine
        self.started = False

    def send(self, value: Any) -> Any:
        """Take a step, as a coroutine does."""
        self.started = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise inside, as a coroutine does."""
        self.started = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it, as a coroutine does."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        self.started = True
        return (yield from self._coroutine.__await__())

    def refuse(self, problem: str) -> NoReturn:
        """Raise what the author has to do; the call will not be made."""
        self.close()
        if self._name in CALLED:
            where = "in a task that compute_reward did not start itself a call has to be awaited"
            hint = f"await ctx.{self._name}(…), or run the task's work in hermes_atropos.bridged(coroutine)"
        else:
            where, hint = "this method has to be awaited", f"await ctx.{self._name}(…)"
        raise VerifierError(f"ctx.{self._name}() {problem}; {where}", hint=hint)

    def _refuse_use(self, *_: Any) -> NoReturn:
        self.refuse("was used as if it were its answer")

    __getitem__ = __iter__ = __contains__ = __len__ = __bool__ = _refuse_use

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python and its libraries look for
            raise AttributeError(name)
        self._refuse_use()


class _Answer:
    """An answer that may be awaited, or given to `asyncio.gather` or `create_task`; it is there already."""

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self

    def send(self, _value: Any) -> Any:
        """End at once with the answer, as a coroutine does."""
        raise StopIteration(self)

    def throw(self, error: BaseException, *_: Any) -> Any:
        """Raise, as a coroutine does."""
        raise error

    def close(self) -> None:
        """Do nothing: it has ended."""


class AnswerDict(_Answer, dict[str, Any]):
    """A dictionary that may be awaited."""

    def __hash__(self) -> int:  # type: ignore[override]  # asyncio.gather keeps what it is given in a dictionary
        return id(self)


class AnswerList(_Answer, list[Any]):
    """A list that may be awaited."""

    def __hash__(self) -> int:  # type: ignore[override]  # as above
        return id(self)


class AnswerText(_Answer, str):
    """A text that may be awaited."""

    __slots__ = ()


class AnswerNone(_Answer):
    """Nothing, that may be awaited."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


def awaitable_answer(value: Any) -> Any:
    """Return an answer of the predecessor's methods in a form that may be awaited too."""
    match value:
        case dict():
            return AnswerDict(value)
        case list():
            return AnswerList(value)
        case str():
            return AnswerText(value)
    return AnswerNone()
