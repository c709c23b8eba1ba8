"""Events for plugins: each listener isolated and timed, its failures counted; almost free without listeners."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from hermes_core.discovery.components.component import EventProblem
from hermes_core.discovery.hooks import call

if TYPE_CHECKING:
    import pluggy

SLOW_SECONDS: Final = 0.05
"""Seconds. A listener runs on the event loop: a slower one delays every other rollout noticeably."""


class EventDispatcher:
    """Calls the listeners of one registry, and records failures: one counted entry per plugin, hook and kind."""

    __slots__ = ("_listeners", "problems")

    def __init__(self, hooks: Iterable[str], implementations: Mapping[str, Mapping[str, pluggy.HookImpl]]) -> None:
        self.problems: dict[tuple[str, str, str], EventProblem] = {}
        """The failures so far, in order of their first appearance."""
        self._listeners = {
            hook: tuple((plugin, found[hook]) for plugin, found in implementations.items() if hook in found)
            for hook in hooks
        }

    def fire(self, hook: str, event: object) -> None:
        """Send an event to every listener in order of plugin id; an error of a listener is recorded, not raised."""
        for plugin, implementation in self._listeners[hook]:
            self._deliver(plugin, hook, implementation, event)

    def listens(self, hook: str) -> bool:
        """Tell whether an event has a listener; for events that are costly to make."""
        return bool(self._listeners[hook])

    def note(self, plugin: str, hook: str, kind: str, message: str, seconds: float = 0.0) -> None:
        """Count one failure."""
        key = (plugin, hook, kind)
        count = self.problems[key].count + 1 if key in self.problems else 1
        self.problems[key] = EventProblem(
            plugin=plugin, hook=hook, kind=kind, count=count, message=message[:500], seconds=seconds
        )

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
