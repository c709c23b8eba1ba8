"""The backend `pool` passes the suite of all backends, over two members of this machine."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from hermes_testing import BackendSuite, PluginSuite

LOCAL = {"backend": "local", "options": {"slots_per_agent": 8}}


class TestPlugin(PluginSuite):
    plugin = "hermes_pool.plugin"
    distribution = "hermes-pool"


@pytest.mark.slow
class TestPool(BackendSuite):
    plugin, component = "hermes_pool.plugin", "pool"
    options = MappingProxyType({"backends": [LOCAL, LOCAL], "slots_per_host": 8, "max_hosts": 2})
