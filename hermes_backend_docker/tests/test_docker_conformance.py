"""The behaviour of every backend, with real containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from hermes_testing.suites.backend.suite import BackendSuite


@pytest.mark.slow
@pytest.mark.component("docker")
class TestContainer(BackendSuite):
    plugin = "hermes_backend_docker.plugin"
    component = "docker"
    options: ClassVar[Mapping[str, Any]] = {"image": "hermes-test:2", "pull": "never"}
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container", "network": "none"}
    crowd = 10  # more than the eight that start at once


@pytest.mark.slow
@pytest.mark.component("docker")
class TestContainerWithSlots(BackendSuite):
    plugin = "hermes_backend_docker.plugin"
    component = "docker"
    options: ClassVar[Mapping[str, Any]] = {"image": "hermes-test:2", "pull": "never"}
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container+slot", "network": "none"}
    lacks: ClassVar[Mapping[str, str]] = {"private_tmp": "slots of one container share its /tmp, a name is taken once"}
