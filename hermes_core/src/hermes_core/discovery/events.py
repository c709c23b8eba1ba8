"""Events to plugins: each isolated and timed, trouble counted, next to free when nobody listens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from hermes_core.discovery.components.component import EventProblem
from hermes_core.discovery.hooks import call

if TYPE_CHECKING:
    import pluggy

SLOW_SECONDS: Final = 0.05
"""A listener runs on the event loop: above this it holds up every other rollout noticeably."""


class EventDispatcher:
    """Calls the listeners of one registry; its record has at most one entry per plugin, hook and kind of trouble."""

    __slots__ = ("_listeners", "_problems")

    def __init__(self, hooks: Iterable[str], implementations: Mapping[str, Mapping[str, pluggy.HookImpl]]) -> None:
        self._problems: dict[tuple[str, str, str], EventProblem] = {}
        self._listeners = {
            hook: tuple((plugin, found[hook]) for plugin, found in implementations.items() if hook in found)
            for hook in hooks
        }

    def fire(self, hook: str, event: object) -> None:
        """Hand an event to every listener in order of plugin id; nothing a listener raises comes out."""
        for plugin, implementation in self._listeners[hook]:
            self._deliver(plugin, hook, implementation, event)

    def listens(self, hook: str) -> bool:
        """Tell whether anybody would receive an event; for events that are costly to make."""
        return bool(self._listeners[hook])

    def note(self, plugin: str, hook: str, kind: str, message: str, seconds: float = 0.0) -> None:
        """Count one piece of trouble."""
        key = (plugin, hook, kind)
        count = self._problems[key].count + 1 if key in self._problems else 1
        self._problems[key] = EventProblem(
            plugin=plugin, hook=hook, kind=kind, count=count, message=message[:500], seconds=seconds
        )

    @property
    def problems(self) -> list[EventProblem]:
        """The trouble so far, in order of its first appearance."""
        return list(self._problems.values())

    def _deliver(self, plugin: str, hook: str, implementation: pluggy.HookImpl, event: object) -> None:
        start = time.perf_counter()
        # The plugin boundary: an observer must never decide how a rollout ends.
        try:
            call(implementation, event=event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - see above; cancellation and Ctrl-C pass
            self.note(plugin, hook, "raised", f"{type(error).__name__}: {error}", time.perf_counter() - start)
        seconds = time.perf_counter() - start
        if seconds > SLOW_SECONDS:
            self.note(plugin, hook, "slow", f"took {seconds * 1000:.0f} ms on the event loop", seconds)
