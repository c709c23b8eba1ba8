"""Base suites for the broken engines."""

from __future__ import annotations

import gc
from typing import ClassVar

import pytest
from impatience import Impatient

from hermes_testing import EngineSuite

_IN_PROCESS = {"workers": "rollouts run in the run's own process"}


class Broken(Impatient, EngineSuite):
    """An engine in this process with one change; the class after `Test` is the engine's."""

    plugin = "broken_engines"
    in_vain = 10.0
    lacks = _IN_PROCESS

    def __init_subclass__(cls, **options):
        cls.component = cls.__name__.removeprefix("Test")
        super().__init_subclass__(**options)


class Leaky(Broken):
    """An engine that leaves connections open: their warnings must appear here and not in the next test."""

    pytestmark = pytest.mark.filterwarnings("ignore")

    @pytest.fixture(autouse=True)
    def _leave_no_garbage(self, bench):
        yield
        del bench
        gc.collect()


class BrokenWorkers(Broken):
    """An engine with two other processes."""

    lacks: ClassVar = {}
