"""The behaviour of every backend, through the unmodified SDK, with real sandboxes of the stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from standin import StandIn

from hermes_core.contracts.sandbox import TerminalBackend
from hermes_core.specs import BackendSpec
from hermes_testing.suites.backend.suite import BackendSuite


class ModalSuite(BackendSuite):
    plugin = "hermes_backend_modal.plugin"
    component = "modal"
    crowd = 8

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _options_of_the_standin(cls, running_standin: StandIn) -> None:
        cls.options = {**running_standin.options, "concurrent_starts": 4}


@pytest.mark.slow
@pytest.mark.component("bwrap")
class TestSandbox(ModalSuite):
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "gvisor", "network": "none"}

    @pytest.mark.xfail(strict=True, reason="the service ends the whole sandbox that takes more memory than its limit")
    async def test_a_command_that_takes_too_much_memory_dies_alone(
        self, backend: TerminalBackend, spec: BackendSpec
    ) -> None:
        await super().test_a_command_that_takes_too_much_memory_dies_alone(backend, spec)


@pytest.mark.slow
@pytest.mark.component("bwrap")
class TestSandboxWithSlots(ModalSuite):
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container+slot", "network": "none"}
    lacks: ClassVar[Mapping[str, str]] = {"private_tmp": "slots of one sandbox share its /tmp, a name is taken once"}
