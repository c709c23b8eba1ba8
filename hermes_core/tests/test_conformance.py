"""The core's own components pass the suites that a stranger's components pass."""

from __future__ import annotations

from hermes_testing import PluginSuite


class TestCorePlugin(PluginSuite):
    plugin, distribution = "hermes_core.plugin", "hermes-agent-core"
