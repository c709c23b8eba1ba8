"""What a backend is written with: subclass `AgentBackend`, and return a `SandboxHost` from its `create`.

`RootAgentHost` is the host of a container; `RecycledHost` and `UserSlot` put many sandboxes into one container.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_sandbox.backend.agent_sandbox import AgentSandbox
    from hermes_sandbox.backend.backend_sandbox import BackendSandbox
    from hermes_sandbox.backend.base import AgentBackend
    from hermes_sandbox.backend.hosts.container_host import RootAgentHost, refuse_mounted
    from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost, SlotOffer, SlotReservation
    from hermes_sandbox.backend.hosts.ownership_scripts import chown_script, make_readonly_script, shared_dir_script
    from hermes_sandbox.backend.hosts.recycled_host import RecycledHost, UserSlot
    from hermes_sandbox.backend.hosts.shared_hosts import HostPool, SharedHost, SharedHostPool
    from hermes_sandbox.backend.hosts.slot_host import HostSeat, SlotHost
    from hermes_sandbox.backend.hosts.slot_uids import first_uid, slot_fields
    from hermes_sandbox.backend.options import (
        ENVIRONMENT,
        PROCESSES,
        AgentOptions,
        CommandUser,
        InsidePath,
        Seconds,
        parse_identity,
    )
    from hermes_sandbox.backend.poolable import PoolableBackend
    from hermes_sandbox.backend.portable_python import NotPortableError, PortablePython, portable_python
    from hermes_sandbox.backend.shell_sandbox import refuse_without_agent
    from hermes_sandbox.leases.book import OWNER_FIELDS, Lease, owner_is_dead
    from hermes_sandbox.posix_shell.client import ShellClient
    from hermes_sandbox.posix_shell.source import shell_command
    from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
    from hermes_sandbox.protocol.client import AgentClient
    from hermes_sandbox.protocol.fd_limits import system_error
    from hermes_sandbox.protocol.push_reader import CallbackReader, open_callback_reader
    from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest
    from hermes_sandbox.protocol.streams import Abortable, AgentStream

__all__ = [
    "ENVIRONMENT", "OWNER_FIELDS", "PROCESSES", "PYTHON_FLAGS", "Abortable", "AgentBackend", "AgentClient",
    "AgentOptions", "AgentSandbox", "AgentSlot", "AgentStream", "BackendSandbox", "CallbackReader", "CommandUser",
    "HostPool", "HostSeat", "InsidePath", "Lease", "MakeHost", "NotPortableError", "PoolableBackend", "PortablePython",
    "RecycledHost", "RootAgentHost", "SandboxHost", "Seconds", "SharedHost", "SharedHostPool", "ShellClient",
    "SlotHost", "SlotOffer", "SlotRequest", "SlotReservation", "UserSlot", "chown_script", "first_uid",
    "make_readonly_script", "open_callback_reader", "owner_is_dead", "parse_identity", "portable_python",
    "refuse_mounted", "refuse_without_agent", "shared_dir_script", "shell_command", "slot_fields", "system_error",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "hermes_sandbox.backend.agent_sandbox": "AgentSandbox",
            "hermes_sandbox.backend.backend_sandbox": "BackendSandbox",
            "hermes_sandbox.backend.base": "AgentBackend",
            "hermes_sandbox.backend.hosts.container_host": "RootAgentHost refuse_mounted",
            "hermes_sandbox.backend.hosts.host": "MakeHost SandboxHost SlotOffer SlotReservation",
            "hermes_sandbox.backend.hosts.ownership_scripts": "chown_script make_readonly_script shared_dir_script",
            "hermes_sandbox.backend.hosts.recycled_host": "RecycledHost UserSlot",
            "hermes_sandbox.backend.hosts.shared_hosts": "HostPool SharedHost SharedHostPool",
            "hermes_sandbox.backend.hosts.slot_host": "HostSeat SlotHost",
            "hermes_sandbox.backend.hosts.slot_uids": "first_uid slot_fields",
            "hermes_sandbox.backend.options": (
                "AgentOptions CommandUser ENVIRONMENT InsidePath PROCESSES Seconds parse_identity"
            ),
            "hermes_sandbox.backend.poolable": "PoolableBackend",
            "hermes_sandbox.backend.portable_python": "NotPortableError PortablePython portable_python",
            "hermes_sandbox.backend.shell_sandbox": "refuse_without_agent",
            "hermes_sandbox.leases.book": "Lease OWNER_FIELDS owner_is_dead",
            "hermes_sandbox.posix_shell.client": "ShellClient",
            "hermes_sandbox.posix_shell.source": "shell_command",
            "hermes_sandbox.protocol.bootstrap": "PYTHON_FLAGS",
            "hermes_sandbox.protocol.client": "AgentClient",
            "hermes_sandbox.protocol.fd_limits": "system_error",
            "hermes_sandbox.protocol.push_reader": "CallbackReader open_callback_reader",
            "hermes_sandbox.protocol.slots": "AgentSlot SlotRequest",
            "hermes_sandbox.protocol.streams": "Abortable AgentStream",
        },
    )
