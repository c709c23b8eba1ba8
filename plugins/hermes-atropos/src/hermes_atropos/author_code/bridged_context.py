"""The `ToolContext` of an `async def compute_reward`: its methods can be called as in hermes-agent, or awaited.

Inside `compute_reward`, a call of one of hermes-agent's methods returns its result, a dictionary, list or text that can
also be awaited. In a task that `compute_reward` did not start, and for new methods, the call returns an awaitable, and
nothing runs until it is awaited.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NoReturn

from hermes_atropos.author_code.author_context import AuthorContext
from hermes_atropos.author_code.bridge import bridge_coroutine, can_wait, wait
from hermes_core.contracts.errors import VerifierError
from hermes_core.rollout import SyncToolContext

CALLED: Final = frozenset(
    {
        "terminal", "read_file", "write_file", "search", "web_search", "web_extract", "browser_navigate",
        "browser_snapshot", "call_tool", "cleanup", "upload_file", "upload_dir", "download_file", "download_dir",
    }
)  # fmt: skip
"""hermes-agent's methods, which need no `await`."""


async def reward_of(compute: Callable[..., Any], item: Any, result: Any, context: AuthorContext) -> Any:
    """Call an environment's `async def compute_reward` with a context for old and new code.

    A required but missing `await` is a `VerifierError` even if the function returned, because the call it relied on
    never ran.
    """
    handle = BridgedContext(context)
    try:
        value = await bridge_coroutine(compute(item, result, handle))
        handle.require_awaited()
        return value
    finally:
        handle.discard()


class BridgedContext:
    """One rollout's `ToolContext` for code in any style.

    In `compute_reward` or a task that it started, a call returns the result, which is also awaitable. In another task
    it returns an awaitable. In a worker thread (`asyncio.to_thread`) it returns the result. `asynchronous` is the plain
    asynchronous context, for `asyncio.gather(ctx.asynchronous.terminal("a"), ctx.asynchronous.terminal("b"))`.
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
        """Raise a `VerifierError` if a call was never awaited."""
        left = [call for call in self._deferred if not call.started]
        if left:
            left[0].refuse("was never awaited, so it did not run")

    def discard(self) -> None:
        """Discard calls that were never awaited."""
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
    """A call that must be awaited; using it as a result raises an error."""

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
        """Raise an error that tells the author what to write; the call does not run."""
        self.close()
        if self._name in CALLED:
            where = "in a task that compute_reward did not start itself, a call must be awaited"
            hint = f"await ctx.{self._name}(…), or run the task's work in hermes_atropos.bridge_coroutine(coroutine)"
        else:
            where, hint = "this method must be awaited", f"await ctx.{self._name}(…)"
        raise VerifierError(f"ctx.{self._name}() {problem}; {where}", hint=hint)

    def _refuse_use(self, *_: Any) -> NoReturn:
        self.refuse("was used as if it were its result")

    __getitem__ = __iter__ = __contains__ = __len__ = __bool__ = _refuse_use

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # probed by Python and libraries
            raise AttributeError(name)
        self._refuse_use()


class _Answer:
    """A result that can also be awaited, or passed to `asyncio.gather` or `create_task`."""

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self

    def send(self, _value: Any) -> Any:
        """Return the result at once, as a coroutine does."""
        raise StopIteration(self)

    def throw(self, error: BaseException, *_: Any) -> Any:
        """Raise, as a coroutine does."""
        raise error

    def close(self) -> None:
        """Do nothing: the call has ended."""


class AnswerDict(_Answer, dict[str, Any]):
    """A dictionary that can be awaited."""

    def __hash__(self) -> int:  # type: ignore[override]  # asyncio.gather keeps what it is given in a dictionary
        return id(self)


class AnswerList(_Answer, list[Any]):
    """A list that can be awaited."""

    def __hash__(self) -> int:  # type: ignore[override]  # as above
        return id(self)


class AnswerText(_Answer, str):
    """A text that can be awaited."""

    __slots__ = ()


class AnswerNone(_Answer):
    """None as a value that can be awaited."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


def awaitable_answer(value: Any) -> Any:
    """Wrap a result of hermes-agent's methods so that it can also be awaited."""
    match value:
        case dict():
            return AnswerDict(value)
        case list():
            return AnswerList(value)
        case str():
            return AnswerText(value)
    return AnswerNone()
