"""Whose a sandbox is: tags, and what they say about an owner that may be dead."""

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
"""What a tag of the service can say without being quoted in any way."""


def tags_of(lease: Lease) -> dict[str, str]:
    """Return the tags that let another process judge a sandbox without the lease's file.

    No deadline: that of the lease moves on while the owner lives.
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
    """Tell whether a sandbox is one of ours whose owner is known to be dead."""
    try:
        pid, start, namespace = tags[_OWNER].split(".")
        found = {"owner_pid": pid, "owner_start": start, "node": tags[NODE], "boot_id": tags[_BOOT]}
    except (KeyError, ValueError):
        return False  # not of this version, and nobody's to judge
    found |= {"machine_id": tags.get(_MACHINE, ""), "pid_namespace": f"pid:[{namespace}]"}
    return SANDBOX in tags and owner_is_dead(found)
