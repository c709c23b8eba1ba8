"""The local engine passes the suite of all engines."""

from __future__ import annotations

from typing import ClassVar

from hermes_testing import EngineSuite


class TestLocal(EngineSuite):
    plugin, component = "hermes_core.plugin", "local"
    lacks: ClassVar = {"workers": "rollouts are played in the run's own process"}
