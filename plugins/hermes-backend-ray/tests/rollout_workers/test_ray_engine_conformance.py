"""The engine passes the suite of all engines, on a real cluster of three nodes."""

from __future__ import annotations

from typing import ClassVar

import pytest
from ray_cluster import PERMANENT

from hermes_testing import EngineSuite


@pytest.mark.slow
class TestEngine(EngineSuite):
    plugin, component = "hermes_backend_ray.plugin", "ray"
    patience = 200.0
    loss_options: ClassVar = {"workers": 2}

    @pytest.fixture(autouse=True)
    def _cluster(self, ray_driver):
        self.options = {"address": ray_driver.address, "workers": 1, "num_cpus": 0, "resources": PERMANENT}
