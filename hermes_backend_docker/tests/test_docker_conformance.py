"""The behaviour of every backend, with real containers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from hermes_testing.suites.backend import BackendSuite


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
    lacks: ClassVar[Mapping[str, str]] = (
        {} if os.geteuid() == 0 else {"private_tmp": "only root can give slots a /tmp of their own"}
    )
