"""Objects that observe the events of one registry: `Registry.with_observer`."""

from __future__ import annotations

import types

import pytest

from hermes_core import hookimpl
from hermes_core.contracts.errors import BrokenComponentError, ConfigError


class Watcher:
    def __init__(self):
        self.seen = []

    @property
    def total(self):
        raise LookupError("not begun")

    @hookimpl
    def hermes_tool_called(self, event):
        self.seen.append(event)


class Failing:
    @hookimpl
    def hermes_tool_called(self, event):
        raise RuntimeError(event)


def test_an_observer_gets_events_of_its_registry_alone(load):
    registry, watcher = load(), Watcher()
    observed = registry.with_observer("watcher", watcher)
    registry.fire("hermes_tool_called", "one")
    observed.fire("hermes_tool_called", "two")
    observed.fire("hermes_rollout_started", "three")
    assert watcher.seen == ["two"]
    assert [observed.listens(hook) for hook in ("hermes_tool_called", "hermes_rollout_started")] == [True, False]
    assert not registry.listens("hermes_tool_called")


def test_an_observer_comes_beside_plugins_and_other_observers(site, load):
    site.install("acme-watch", "seen = []\n\n@hookimpl\ndef hermes_tool_called(event):\n    seen.append(event)")
    first, second = Watcher(), Watcher()
    registry = load("acme-watch")
    observed = registry.with_observer("first", first).with_observer("second", second)
    observed.fire("hermes_tool_called", "one")
    plugin = next(record for record in observed.plugins if record.id.startswith("acme-watch"))
    assert (plugin.module.seen, first.seen, second.seen) == (["one"], ["one"], ["one"])


def test_what_an_observer_raises_is_counted_under_its_name(load):
    registry = load()
    observed = registry.with_observer("sink:failing", Failing())
    observed.fire("hermes_tool_called", "one")
    assert [(one.plugin, one.message) for one in observed.event_problems] == [("sink:failing", "RuntimeError: one")]
    assert registry.event_problems == []


def test_failures_before_an_observer_came_stay_with_those_after_it(load):
    before = load().with_observer("first", Failing())
    before.fire("hermes_tool_called", "one")
    observed = before.with_observer("second", Failing())
    observed.fire("hermes_tool_called", "two")
    assert [(one.plugin, one.count) for one in observed.event_problems] == [("first", 2), ("second", 1)]
    assert [(one.plugin, one.count) for one in before.event_problems] == [("first", 1)]


def test_an_object_without_a_hook_of_an_event_changes_nothing(load):
    registry = load()
    assert registry.with_observer("object", object()) is registry


def test_a_module_observes_as_well(load):
    module, seen = types.ModuleType("watching"), []
    module.__dict__["hermes_tool_called"] = hookimpl(lambda event: seen.append((event,)))
    load().with_observer("watching", module).fire("hermes_tool_called", "one")
    assert seen == [("one",)]


class Unmarked:
    def hermes_tool_called(self, event):
        del event


class Awaiting:
    @hookimpl
    async def hermes_tool_called(self, event):
        del event


class Misspelt:
    @hookimpl
    def hermes_tool_caled(self, event):
        del event


class Greedy:
    @hookimpl
    def hermes_tool_called(self, event, other):
        del event, other


class Declaring:
    @hookimpl
    def hermes_tools(self):
        return []


@pytest.mark.parametrize(
    ("observer", "said"),
    [
        (Unmarked, "hermes_tool_called is not marked; write @hookimpl"),
        (Awaiting, "hermes_tool_called is a coroutine function"),
        (Misspelt, r"there is no hook 'hermes_tool_caled'; did you mean .hermes_tool_called.\?"),
        (Greedy, "hook hermes_tool_called has no argument 'other'; known arguments: event"),
        (Declaring, "expected hooks of events, got hermes_tools"),
    ],
)
def test_a_method_that_would_never_be_called_is_refused(load, observer, said):
    with pytest.raises(BrokenComponentError, match=f"(?s)mine cannot observe: .*{said}"):
        load().with_observer("mine", observer())


def test_two_observers_of_one_name_are_refused(load):
    with pytest.raises(ConfigError, match="expected a name that no observer has, got 'mine'"):
        load().with_observer("mine", Watcher()).with_observer("mine", Watcher())
