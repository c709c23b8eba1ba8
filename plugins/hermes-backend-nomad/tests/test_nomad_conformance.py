"""The backend passes the backend suite, on the stand-in and, if available, on a real Nomad."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest
from nomad_standin import StandIn

from hermes_testing import BackendSuite, PluginSuite

_SHARED = {"private_tmp": "slots of one container share its /tmp, a name is taken once"}


class TestPlugin(PluginSuite):
    plugin = "hermes_backend_nomad.plugin"
    distribution = "hermes-backend-nomad"


class OnStandIn(BackendSuite):
    plugin, component = "hermes_backend_nomad.plugin", "nomad"

    @pytest.fixture(autouse=True)
    def _cluster(self, standin_process: StandIn):
        standin_process.faults()
        self.options: dict[str, Any] = {
            "nomad_address": standin_process.address, "sandbox_image": "hermes:1", "max_containers": 24,
            "acquire_timeout_s": 120,
        }  # fmt: skip
        yield
        assert standin_process.tell("errors") == []


@pytest.mark.slow
@pytest.mark.component("bwrap")
class TestSlotsOfContainers(OnStandIn):
    sandbox_fields: ClassVar = {"isolation": "container+slot", "network": "none"}
    lacks: ClassVar = _SHARED


@pytest.mark.slow
@pytest.mark.component("bwrap")
class TestContainers(OnStandIn):
    sandbox_fields: ClassVar = {"isolation": "container", "network": "none"}
    crowd = 10


@pytest.mark.slow
@pytest.mark.component("nomad")
class TestOnNomad(BackendSuite):
    """Needs NOMAD_ADDR, and NOMAD_TEST_IMAGE if the nodes cannot pull the default."""

    plugin, component = "hermes_backend_nomad.plugin", "nomad"
    sandbox_fields: ClassVar = {"isolation": "container+slot", "network": "none"}
    lacks: ClassVar = _SHARED
    options: ClassVar = {"sandbox_image": os.environ.get("NOMAD_TEST_IMAGE", "python:3.12"), "acquire_timeout_s": 300}
