"""Promises about the page of hooks and the table of kinds."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

from hermes_core import hookspecs, specs
from hermes_core.discovery.hooks import HookManager
from hermes_core.discovery.kinds import KINDS

HOOKS = {name: function for name, function in vars(hookspecs).items() if hasattr(function, "hermes_core_spec")}
QUESTIONS = {"hermes_parser_for", "hermes_run_backends"}
EVENTS = {name for name, function in HOOKS.items() if list(inspect.signature(function).parameters) == ["event"]}


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_every_hook_has_a_docstring_that_says_when_it_is_called(name):
    text = inspect.getdoc(HOOKS[name])
    assert text
    # For declarations and events the page says it at its top.
    assert re.search(r"[Cc]alled|^Declare |^Observe ", text)
    assert text.partition("\n")[0].endswith(".")


def test_the_page_of_hooks_says_when_declarations_are_called_and_how_events_are_sent():
    told = " ".join((hookspecs.__doc__ or "").split())
    assert "are called once per plugin, by `discovery.load_plugins`" in told
    assert "called on the event loop, they must not block, and an error is recorded, not raised" in told


def test_every_hook_is_prefixed_and_synchronous():
    assert all(name.startswith("hermes_") for name in HOOKS)
    assert not any(inspect.iscoroutinefunction(function) for function in HOOKS.values())


def test_every_kind_has_its_hook_and_every_declaration_hook_its_kind():
    assert {kind.hook for kind in KINDS.values()} == set(HOOKS) - EVENTS - QUESTIONS


def test_every_spec_of_the_specs_module_is_a_kind():
    classes = {c for c in vars(specs).values() if inspect.isclass(c) and issubclass(c, specs.Declaration)}
    assert {kind.spec for kind in KINDS.values()} == classes - {specs.Declaration, specs.ComponentSpec}


def test_every_hook_declares_what_its_kind_holds():
    for kind in KINDS.values():
        annotation = inspect.signature(HOOKS[kind.hook]).return_annotation
        assert annotation == f"Iterable[specs.{kind.spec.__name__}]"


def test_the_events_are_exactly_what_can_be_fired():
    assert set(HookManager().event_hooks()) == EVENTS
    assert len(EVENTS) == 5


def test_every_event_is_a_frozen_object():
    from hermes_core.contracts import events

    for name in EVENTS:
        event = getattr(events, inspect.signature(HOOKS[name]).parameters["event"].annotation.partition(".")[2])
        example = event(**{field.name: None for field in dataclasses.fields(event)})
        with pytest.raises(dataclasses.FrozenInstanceError):
            example.rollout_id = "other"
