"""Backend `local`: processes of this machine, plain or inside bubblewrap; and helpers for such processes."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_sandbox.agent.processes import (
        MARKER,
        belongs_to,
        look_into,
        read_marker,
        read_process,
        read_table,
        send,
        with_descendants,
    )
    from hermes_sandbox.local.backend import LocalBackend
    from hermes_sandbox.local.cgroups import ControlGroups, Group, remove_group
    from hermes_sandbox.local.files import delete_tree, find_abandoned, write_lease_copy
    from hermes_sandbox.local.kill import kill_processes
    from hermes_sandbox.local.limits import Limits, plan_limits
    from hermes_sandbox.local.options import LocalOptions
    from hermes_sandbox.local.tmpfs import mount_sized, unmount
    from hermes_sandbox.protocol.agent_process import AgentProcess, kill_and_wait

__all__ = [
    "MARKER", "AgentProcess", "ControlGroups", "Group", "Limits", "LocalBackend", "LocalOptions", "belongs_to",
    "delete_tree", "find_abandoned", "kill_and_wait", "kill_processes", "look_into", "mount_sized", "plan_limits",
    "read_marker", "read_process", "read_table", "remove_group", "send", "unmount", "with_descendants",
    "write_lease_copy",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".backend": "LocalBackend",
            ".cgroups": "ControlGroups Group remove_group",
            ".files": "delete_tree find_abandoned write_lease_copy",
            ".kill": "kill_processes",
            ".limits": "Limits plan_limits",
            ".options": "LocalOptions",
            ".tmpfs": "mount_sized unmount",
            "hermes_sandbox.agent.processes": (
                "MARKER belongs_to look_into read_marker read_process read_table send with_descendants"
            ),
            "hermes_sandbox.protocol.agent_process": "AgentProcess kill_and_wait",
        },
    )
