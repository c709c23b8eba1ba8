"""The backend passes the suite of all backends, on a real cluster."""

from __future__ import annotations

from typing import ClassVar

import pytest
from ray_cluster import PERMANENT

from hermes_testing import BackendSuite, PluginSuite


class TestPlugin(PluginSuite):
    plugin = "hermes_backend_ray.plugin"
    distribution = "hermes-backend-ray"


class OnRay(BackendSuite):
    plugin, component = "hermes_backend_ray.plugin", "ray"

    @pytest.fixture(autouse=True)
    def _cluster(self, ray_driver):
        given = {"actor_timeout": 60, "setup_timeout": 120, "resources": PERMANENT}
        self.options = {"address": ray_driver.address, **given}


@pytest.mark.slow
class TestPlain(OnRay):
    pass


@pytest.mark.slow
@pytest.mark.component("bwrap")
class TestBubblewrap(OnRay):
    sandbox_fields: ClassVar = {"isolation": "bwrap"}
