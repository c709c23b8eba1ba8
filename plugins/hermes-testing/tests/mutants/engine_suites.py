"""What the broken engines' suites share."""

from __future__ import annotations

import gc
from typing import ClassVar

import pytest
from impatience import Impatient

from hermes_testing import EngineSuite

_IN_PROCESS = {"workers": "rollouts are played in the run's own process"}


class Broken(Impatient, EngineSuite):
    """An engine that plays in this process, but for one thing; the class after `Test` is the engine's."""

    plugin = "broken_engines"
    in_vain = 10.0
    lacks = _IN_PROCESS

    def __init_subclass__(cls, **options):
        cls.component = cls.__name__.removeprefix("Test")
        super().__init_subclass__(**options)


class Leaky(Broken):
    """One that leaves connections open: their warnings shall come here and not in whatever test is next."""

    pytestmark = pytest.mark.filterwarnings("ignore")

    @pytest.fixture(autouse=True)
    def _leave_no_garbage(self, bench):
        yield
        del bench
        gc.collect()


class BrokenWorkers(Broken):
    """One that plays in two other processes."""

    lacks: ClassVar = {}
