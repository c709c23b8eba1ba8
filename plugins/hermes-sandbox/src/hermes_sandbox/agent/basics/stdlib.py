"""What the agent takes from the standard library in a small form: the full modules would be half of its start.

`contextlib`, `signal` and `typing` import `collections`, `enum`, `functools` and `re`, which the agent needs for
nothing else. A Python without the C modules below gets the full ones.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal as signal
    from collections.abc import Callable, Iterator
    from contextlib import contextmanager as contextmanager
    from contextlib import suppress as suppress
    from heapq import heapify as heapify
    from heapq import heappop as heappop
    from heapq import heappush as heappush
    from typing import Any
    from typing import NamedTuple as NamedTuple
else:
    from _operator import itemgetter

    try:
        import _signal as signal
        from _heapq import heapify as heapify
        from _heapq import heappop as heappop
        from _heapq import heappush as heappush
    except ImportError:
        import signal as signal
        from heapq import heapify as heapify
        from heapq import heappop as heappop
        from heapq import heappush as heappush

    class suppress:  # noqa: N801 - as in contextlib
        """Ends the block at one of these errors."""

        def __init__(self, *errors: type[BaseException]) -> None:
            self._errors = errors

        def __enter__(self) -> None:
            return None

        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
            return kind is not None and issubclass(kind, self._errors)

    class _Steps:
        """The context of a function that yields once."""

        def __init__(self, steps: Iterator[Any]) -> None:
            self._steps = steps

        def __enter__(self) -> Any:
            return next(self._steps)

        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
            if error is None:
                next(self._steps, None)
                return False
            try:
                self._steps.throw(error)
            except StopIteration:
                return True  # the function has handled it
            except BaseException as raised:
                # A generator cannot raise StopIteration; Python makes it the cause of another error.
                is_same = raised is error or (isinstance(error, StopIteration) and raised.__cause__ is error)
                if not is_same:
                    raise
            return False

    def contextmanager(function: Callable[..., Iterator[Any]]) -> Callable[..., _Steps]:
        """Make a function that yields once usable in `with`."""
        return lambda *arguments, **named: _Steps(function(*arguments, **named))

    class NamedTuple(tuple):
        """A tuple whose items have the names that a subclass annotates, and its values where it has any."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            cls._names = tuple(cls.__annotations__)
            cls._defaults = {name: cls.__dict__[name] for name in cls._names if name in cls.__dict__}
            for number, name in enumerate(cls._names):
                setattr(cls, name, property(itemgetter(number)))

        def __new__(cls, *items: Any, **named: Any) -> Any:
            """Take the items in their order, or by their names."""
            if named or len(items) != len(cls._names):
                rest = cls._names[len(items) :]
                values = {**{name: cls._defaults[name] for name in rest if name in cls._defaults}, **named}
                if values.keys() != set(rest) or len(items) > len(cls._names):
                    raise TypeError(f"{cls.__name__} takes {cls._names}, got {len(items)} items and {sorted(named)}")
                items += tuple(values[name] for name in rest)
            return tuple.__new__(cls, items)

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            items = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)
            return f"{type(self).__name__}({items})"

        def _replace(self, **named: Any) -> Any:
            return type(self)(**{**{name: getattr(self, name) for name in self._names}, **named})
