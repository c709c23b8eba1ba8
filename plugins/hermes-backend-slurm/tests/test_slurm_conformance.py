"""The backend passes the suite of all backends, on a real Slurm of two nodes."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hermes_testing import BackendSuite, PluginSuite


class TestPlugin(PluginSuite):
    plugin = "hermes_backend_slurm.plugin"
    distribution = "hermes-backend-slurm"


class OnSlurm(BackendSuite):
    plugin, component = "hermes_backend_slurm.plugin", "slurm"

    @pytest.fixture(autouse=True)
    def _cluster(self, slurm, job):
        self.options = {"conf": str(slurm.conf), "job_id": job}


@pytest.mark.slow
@pytest.mark.component("slurm")
class TestPlain(OnSlurm):
    pass


@pytest.mark.slow
@pytest.mark.component("slurm", "bwrap")
class TestBubblewrap(OnSlurm):
    sandbox_fields: ClassVar = {"isolation": "bwrap"}
