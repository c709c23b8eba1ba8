"""The suite every terminal backend passes."""

from __future__ import annotations

from hermes_testing.suites.backend_commands import Commands
from hermes_testing.suites.backend_files import Files
from hermes_testing.suites.backend_lifecycle import Lifecycle
from hermes_testing.suites.backend_sessions import Sessions


class BackendSuite(Commands, Sessions, Files, Lifecycle):
    """Behaviour of a terminal backend.

    Set `plugin` and `component`, and `sandbox_fields` for what every sandbox of the suite asks for (isolation, image).
    Capabilities that may be named in `lacks`: `state` (a session that survives commands), `cancel`, `file_modes`,
    `visible_environment` (/proc of the sandbox's own processes), `visible_processes` (this machine sees them).
    """
