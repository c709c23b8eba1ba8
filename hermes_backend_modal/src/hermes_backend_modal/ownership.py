"""The owner of a sandbox: its tags, and whether the owner is dead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hermes_sandbox.backends import Lease, owner_is_dead

SANDBOX: Final = "hermes_sandbox"
POOL: Final = "hermes_pool"
NODE: Final = "hermes_node"
_OWNER: Final = "hermes_owner"
_BOOT: Final = "hermes_boot"
_MACHINE: Final = "hermes_machine"
_ROLLOUT: Final = "hermes_rollout"
_FIT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""The characters that need no quoting in a tag of the service."""


def tags_of(lease: Lease) -> dict[str, str]:
    """Return the tags that identify a sandbox's owner without the lease's file.

    They have no deadline, because the lease's deadline moves while the owner lives.
    """
    namespace = re.sub(r"\D", "", lease.pid_namespace)
    tags = {
        SANDBOX: lease.sandbox_id,
        _OWNER: f"{lease.owner_pid}.{lease.owner_start}.{namespace}",
        NODE: lease.node,
        _BOOT: lease.boot_id,
    }
    if lease.machine_id:
        tags[_MACHINE] = lease.machine_id
    if lease.rollout_id is not None and _FIT.fullmatch(lease.rollout_id):
        tags[_ROLLOUT] = lease.rollout_id
    return tags


def is_abandoned(tags: Mapping[str, str]) -> bool:
    """Return whether a sandbox is ours and its owner is dead."""
    try:
        pid, start, namespace = tags[_OWNER].split(".")
        found = {"owner_pid": pid, "owner_start": start, "node": tags[NODE], "boot_id": tags[_BOOT]}
    except (KeyError, ValueError):
        return False  # not of this version, so it cannot be judged
    found |= {"machine_id": tags.get(_MACHINE, ""), "pid_namespace": f"pid:[{namespace}]"}
    return SANDBOX in tags and owner_is_dead(found)
