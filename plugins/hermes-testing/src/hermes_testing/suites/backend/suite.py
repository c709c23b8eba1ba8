"""The suite every terminal backend passes."""

from __future__ import annotations

from hermes_testing.suites.backend.commands import Commands
from hermes_testing.suites.backend.endings import Endings
from hermes_testing.suites.backend.files import Files
from hermes_testing.suites.backend.isolation import Isolation
from hermes_testing.suites.backend.lifecycle import Lifecycle
from hermes_testing.suites.backend.processes import BackgroundProcesses
from hermes_testing.suites.backend.sessions import LiveSessions, Sessions
from hermes_testing.suites.backend.terminals import Terminals
from hermes_testing.suites.backend.transfers import Transfers


class BackendSuite(
    Commands, Sessions, LiveSessions, BackgroundProcesses, Terminals, Files, Transfers, Isolation, Lifecycle, Endings
):
    """Behaviour of a terminal backend.

    Set `plugin` and `component`, and `sandbox_fields` for the fields of every sandbox of the suite (isolation, image).
    Capabilities that may be named in `lacks`:

    - `state`: a session that survives commands; `live`: a session that is one long bash.
    - `cancel`: cancelling a call kills the processes it started.
    - `processes`: background processes; `pty`: those on a terminal.
    - `file_modes`, `sparse_files`: the sandbox's file system keeps them.
    - `leases`: it is built on `AgentBackend`, which writes them.
    - `separation`: the promises of any isolation except `none`; `private_tmp`: names in /tmp are not shared.
    - `visible_environment`: processes of the sandbox can read their own /proc.
    - `visible_processes`: this machine sees the sandbox's processes.
    """
