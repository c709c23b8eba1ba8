"""The behaviour of every backend, with real instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import small_images

from hermes_testing import PluginSuite
from hermes_testing.suites.backend.suite import BackendSuite


class TestPlugin(PluginSuite):
    plugin = "hermes_backend_singularity.plugin"
    distribution = "hermes-backend-singularity"


@pytest.mark.slow
@pytest.mark.component("apptainer")
class TestInstance(BackendSuite):
    plugin = "hermes_backend_singularity.plugin"
    component = "singularity"
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container", "network": "none"}
    crowd = 10  # more than the eight that start at once

    @pytest.fixture(autouse=True)
    def _places(self, image: str) -> None:
        self.options = {"program": small_images.program(), "image": image}
