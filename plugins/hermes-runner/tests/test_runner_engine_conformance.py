"""The local engine passes the suite of all engines, and the package that of all plugins."""

from __future__ import annotations

from typing import ClassVar

from hermes_testing import EngineSuite, PluginSuite


class TestPlugin(PluginSuite):
    plugin, distribution = "hermes_runner.plugin", "hermes-runner"


class TestLocal(EngineSuite):
    plugin, component = "hermes_runner.plugin", "local"
    lacks: ClassVar = {"workers": "rollouts run in the run's own process"}
