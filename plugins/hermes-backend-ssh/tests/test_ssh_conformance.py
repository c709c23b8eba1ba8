"""The backend passes the suite of all backends, on a real sshd."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hermes_testing import BackendSuite, PluginSuite


class TestPlugin(PluginSuite):
    plugin = "hermes_backend_ssh.plugin"
    distribution = "hermes-backend-ssh"


class OnSshd(BackendSuite):
    plugin, component = "hermes_backend_ssh.plugin", "ssh"

    @pytest.fixture(autouse=True)
    def _machine(self, sshd):
        self.options = sshd.options


@pytest.mark.slow
@pytest.mark.component("sshd")
class TestPlain(OnSshd):
    pass


@pytest.mark.slow
@pytest.mark.component("sshd", "bwrap")
class TestBubblewrap(OnSshd):
    sandbox_fields: ClassVar = {"isolation": "bwrap"}
