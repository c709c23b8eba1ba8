"""The base of all suites: capabilities that skip tests with a reason, and the rule against silent overrides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest

from hermes_testing.registries import isolated_registry

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import Declaration

Test = TypeVar("Test", bound=Callable[..., Any])

_NEEDS = "_hermes_needs"
_GUARD = "test_inherited_tests_are_kept"
_KIT = __name__.split(".", maxsplit=1)[0]


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Mark a test to skip if the suite's `lacks` names one of these capabilities."""

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, capabilities)
        return test

    return mark


class Suite:
    """Base of all suites.

    `lacks` maps a missing capability of the component to the reason, which is shown for the skip. An inherited test may
    be overridden only under its own name and with the mark `xfail(strict=True, reason=…)`; otherwise another test
    fails.
    """

    lacks: ClassVar[Mapping[str, str]] = {}
    loop_scope: ClassVar[str] = "function"
    """The scope of the event loop of asynchronous tests, as in pytest-asyncio."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _GUARD in vars(cls):
            raise TypeError(f"{cls.__qualname__} overrides {_GUARD}, the only test that must not be overridden")
        for name, test in vars(cls).items():
            # A third party's pytest may run pytest-asyncio in strict mode, so the suites mark their asynchronous tests.
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                pytest.mark.asyncio(loop_scope=cls.loop_scope)(test)

    @pytest.fixture(autouse=True)
    def _skip_what_is_lacking(self, request: pytest.FixtureRequest) -> None:
        lacking = self.lacking()
        for capability in getattr(request.function, _NEEDS, ()):
            if capability in lacking:
                pytest.skip(f"lacks {capability}: {lacking[capability]}")

    def lacking(self) -> Mapping[str, str]:
        """Return the missing capabilities of the component, each with the reason."""
        return self.lacks

    def test_inherited_tests_are_kept(self) -> None:
        """No test of the suite is deleted, silently replaced or skipped by an unknown capability."""
        assert _broken_promises(type(self)) == []


def _broken_promises(suite: type[Suite]) -> list[str]:
    inherited = _kit_tests(suite)
    problems = [
        f"{name}: {problem}"
        for name, original in inherited.items()
        if (problem := _override_problem(original, getattr(suite, name, None)))
    ]
    known = {capability for test in inherited.values() for capability in getattr(test, _NEEDS, ())}
    problems += [f"lacks[{name!r}]: no test needs this capability" for name in suite.lacks if name not in known]
    problems += [f"lacks[{name!r}]: no reason is given" for name, reason in suite.lacks.items() if not reason.strip()]
    return problems


def _kit_tests(suite: type[Suite]) -> dict[str, Any]:
    ours = [base for base in reversed(suite.__mro__) if base.__module__.split(".", maxsplit=1)[0] == _KIT]
    return {name: test for base in ours for name, test in vars(base).items() if name.startswith("test_")}


def _override_problem(original: Any, found: Any) -> str | None:
    if found is original:
        return None
    if not callable(found):
        return "deleted; mark it xfail(strict=True, reason=…) instead"
    for mark in getattr(found, "pytestmark", []):
        if mark.name == "xfail" and mark.kwargs.get("strict") is True and mark.kwargs.get("reason"):
            return None
    return "overridden without xfail(strict=True, reason=…)"


class ComponentSuite(Suite):
    """Base of the suites for one component, which the real loader creates from the plugin's module.

    `plugin` is the module that the entry point names, `component` the component's name, `options` its constructor's
    options.
    """

    kind: ClassVar[str]
    plugin: ClassVar[str]
    component: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def registry(self) -> Registry:
        """A registry of only the core and this plugin, regardless of installed plugins."""
        return isolated_registry(self.plugin)

    @pytest.fixture
    def spec(self, registry: Registry) -> Declaration:
        """The component's declaration."""
        return registry.spec(self.kind, self.component)

    def make(self, registry: Registry) -> Any:
        """Create a new object of the component."""
        return registry.create(self.kind, self.component, dict(self.options))
