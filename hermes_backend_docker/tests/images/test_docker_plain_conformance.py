"""The common backend behaviour for an image without Python, as far as it is supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pytest

from hermes_testing.suites.backend.commands import Commands
from hermes_testing.suites.backend.files import Files
from hermes_testing.suites.backend.sessions import Sessions

_NOT_OFFERED: Final = {
    "test_functions_survive": "a POSIX shell cannot print its functions",
    "test_aliases_survive": "no more than the directory and exported variables is kept",
    "test_state_survives_the_end_of_the_shell": "the test also asks for a function",
    "test_commands_are_taken_as_bash_would[bash_only]": "the image has no bash",
}


@pytest.mark.slow
@pytest.mark.component("docker")
@pytest.mark.usefixtures("plain_image")
class TestContainerWithoutPython(Commands, Sessions, Files):
    """The parts of the suite about what a plain shell offers; everything else is refused, as other tests show."""

    plugin = "hermes_backend_docker.plugin"
    component = "docker"
    options: ClassVar[Mapping[str, Any]] = {"image": "hermes-plain-test:1", "pull": "never"}
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container", "network": "none"}

    @pytest.fixture(autouse=True)
    def _what_is_not_offered(self, request: pytest.FixtureRequest) -> None:
        for name, reason in _NOT_OFFERED.items():
            if request.node.name.startswith(name):
                request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
