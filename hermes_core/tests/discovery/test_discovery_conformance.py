"""The contract check that is made when a target is loaded."""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from typing import Any, Protocol

import pytest

from hermes_core.contracts.events import Sink
from hermes_core.contracts.sandbox import TerminalBackend
from hermes_core.contracts.tool import Tool
from hermes_core.contracts.verifier import Verifier
from hermes_core.discovery.components.conformance import contract_violations
from hermes_core.discovery.kinds import KINDS


class Opener(Protocol):
    async def open(self, spec: Any, *, label: str = "") -> Any: ...


def passing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Plain:
    async def open(self, spec, *, label=""): ...


class Builtin:
    open = max


class More:
    async def open(self, spec, label="", more=None): ...


class Anything:
    async def open(self, *args, **kwargs): ...


class Static:
    @staticmethod
    async def open(spec, *, label=""): ...


class OfClass:
    @classmethod
    async def open(cls, spec, *, label=""): ...


class HandsOn:
    def open(self, spec: Any, *, label: str = "") -> Awaitable[Any]:
        return Plain().open(spec, label=label)


class Wrapped:
    @passing
    async def open(self, spec, *, label=""): ...


class Inherits(Plain):
    pass


class WithoutLabel:
    async def open(self, spec): ...


class Renamed:
    async def open(self, specification, *, label=""): ...


class Demands:
    async def open(self, spec, *, label="", token): ...


class Blocks:
    def open(self, spec, *, label=""): ...


class NotCallable:
    open = "yes"


@pytest.mark.parametrize("good", [Plain, Builtin, More, Anything, Static, OfClass, HandsOn, Wrapped, Inherits])
def test_whatever_can_be_called_that_way_passes_as_class_and_as_object(good):
    assert contract_violations(good, Opener) == []
    assert contract_violations(good(), Opener) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (WithoutLabel, "open does not take 'label'"),
        (Renamed, "open does not take 'spec'"),
        (Demands, "open requires 'token', which no caller passes"),
        (Blocks, "open must be 'async def'"),
        (NotCallable, "it has no method open(spec, label)"),
        (object, "it has no method open(spec, label)"),
    ],
)
def test_what_would_fail_in_the_middle_of_a_run_is_named(bad, message):
    """`isinstance` with a runtime protocol looks at names only."""
    assert message in contract_violations(bad, Opener)
    assert message in contract_violations(bad(), Opener)


def test_synchronous_and_asynchronous_tools_and_verifiers_are_welcome():
    class Both:
        def call(self, arguments, context): ...
        def score(self, result, context): ...

    class Waiting:
        async def call(self, arguments, context): ...
        async def score(self, result, context): ...

    for target in (Both, Waiting):
        assert contract_violations(target, Tool) == []
        assert contract_violations(target, Verifier) == []


def test_a_coroutine_that_nothing_would_await_is_named():
    class Forgotten:
        def open(self, folder): ...
        async def write(self, outcome): ...
        def close(self): ...

    assert contract_violations(Forgotten, Sink) == ["write must be 'def', not 'async def'"]


def test_every_protocol_of_the_table_satisfies_itself():
    from hermes_core.discovery.components.conformance import import_target

    for kind in KINDS.values():
        if kind.protocol is not None:
            protocol = import_target(kind.protocol)
            assert contract_violations(protocol, protocol) == []
    assert len(contract_violations(object, TerminalBackend)) == 3
