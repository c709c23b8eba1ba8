"""A plugin manager that refuses mistakes which pluggy would ignore, before any code of the plugin has run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pluggy

from hermes_core import hookspecs
from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.nearest import did_you_mean

PROJECT: Final = "hermes_core"


class BadPluginError(Exception):
    """A plugin breaks a rule of the interface; the message is for its author."""


class IncompatiblePluginError(BadPluginError):
    """A plugin was written for a later generation of the interface."""


class HookManager(pluggy.PluginManager):
    """pluggy's manager with the rules for hook functions; one per registry."""

    def __init__(self) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(hookspecs)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Find a hook's options as pluggy does, and raise `BadPluginError` for a function that cannot work."""
        options = super().parse_hookimpl_opts(plugin, name)
        function: Any = getattr(plugin, name) if options is not None or name in self.hook.__dict__ else None
        if options is None:
            self._check_unmarked(plugin, name, function)
            return None
        hook = options.get("specname") or name
        if not options.get("optionalhook") and not self._has_spec(hook):
            raise BadPluginError(f"there is no hook {hook!r}; {self._nearest(hook)}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise BadPluginError(f"{name} is a wrapper; each plugin is called separately, so there is nothing to wrap")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise BadPluginError(f"{name} is a coroutine function; {WHERE_ASYNC_BELONGS}")
        if self._has_spec(hook):
            self._check_arguments(hook, pluggy.HookImpl(plugin, "", function, options))
        return options

    def implementations(self, plugin_id: str) -> dict[str, pluggy.HookImpl]:
        """Return the hook functions one registered plugin brought, by hook name."""
        return {
            caller.name: implementation
            for caller in self.get_hookcallers(self.get_plugin(plugin_id)) or ()
            for implementation in caller.get_hookimpls()
            if implementation.plugin_name == plugin_id and caller.has_spec()
        }

    def event_hooks(self) -> tuple[str, ...]:
        """Return the names of the hooks that receive an event."""
        callers = self.hook.__dict__.items()
        return tuple(name for name, caller in callers if caller.spec is not None and caller.spec.argnames == ("event",))

    def _has_spec(self, hook: str) -> bool:
        caller = self.hook.__dict__.get(hook)
        return isinstance(caller, pluggy.HookCaller) and caller.has_spec()

    def _check_unmarked(self, plugin: object, name: str, function: Callable[..., object] | None) -> None:
        # Without the marker pluggy sees no hook: everything the plugin declares would be missing silently.
        if self._has_spec(name) and isinstance(plugin, ModuleType | SimpleNamespace) and inspect.isroutine(function):
            raise BadPluginError(f"{name} is not marked; write @hookimpl (from hermes_core) above it")

    def _check_arguments(self, hook: str, implementation: pluggy.HookImpl) -> None:
        known = self.hook.__dict__[hook].spec.argnames
        if unknown := [name for name in implementation.argnames if name not in known]:
            names, every = ", ".join(map(repr, unknown)), ", ".join(known) or "none"
            raise BadPluginError(f"hook {hook} has no argument {names}; known arguments: {every}")

    def _nearest(self, hook: str) -> str:
        known = [name for name in self.hook.__dict__ if self._has_spec(name)]
        return did_you_mean(hook, known, otherwise=f"known hooks: {', '.join(sorted(known))}")


def observer_hooks(name: str, observer: object) -> dict[str, pluggy.HookImpl]:
    """Return the event hooks of an object, which are methods marked `@hookimpl`; its properties are not read."""
    manager = HookManager()
    events, found = manager.event_hooks(), [(key, inspect.getattr_static(observer, key, None)) for key in dir(observer)]
    hooks = [key for key, value in found if key in events or hasattr(value, f"{PROJECT}_impl")]
    try:
        manager.register(SimpleNamespace(**{key: getattr(observer, key) for key in hooks}), name=name)
    except BadPluginError as error:
        raise BrokenComponentError(f"{name} cannot observe: {error}") from error
    if others := sorted(manager.implementations(name).keys() - {*events}):
        raise BrokenComponentError(f"{name} cannot observe: expected hooks of events, got {', '.join(others)}")
    return manager.implementations(name)


WHERE_ASYNC_BELONGS: Final = (
    "hooks are called synchronously and nothing would await it: declare in the hook, "
    "await in the methods of the component"
)


def call(implementation: pluggy.HookImpl, **arguments: object) -> object:
    """Call one hook function with the arguments it takes; returning an awaitable is an error."""
    wanted = (*implementation.argnames, *implementation.kwargnames)
    answer = implementation.function(**{name: arguments[name] for name in wanted if name in arguments})
    if answer is not None and inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise BadPluginError(f"{implementation.function.__name__} returned an awaitable; {WHERE_ASYNC_BELONGS}")
    return answer
