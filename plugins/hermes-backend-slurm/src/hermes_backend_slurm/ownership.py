"""The owner of a job or step, encoded in its name."""

from __future__ import annotations

import re
from typing import Final

from hermes_sandbox.backends import Lease, owner_is_dead

_PREFIX: Final = "hermes"
_NAMESPACE: Final = re.compile(r"\d+")
_WORDS: Final = 8


def own_mark() -> str:
    """Return the name prefix of this process's jobs and steps; a suffix after a colon distinguishes them."""
    lease = Lease.of_this_process(sandbox_id="-", backend="slurm", rollout_id=None, deadline=0.0, handle={})
    namespace = _NAMESPACE.search(lease.pid_namespace)
    # Neither node names nor boot ids contain a colon; the boot id distinguishes the boots of one machine.
    where = (lease.node, lease.boot_id, namespace.group() if namespace else "")
    return ":".join(map(str, (_PREFIX, *where, lease.owner_pid, lease.owner_start, lease.machine_id)))


def is_abandoned(name: str) -> bool:
    """Return whether a job's or step's name is one of ours with a dead owner; names of other jobs are not."""
    words = name.split(":")
    if len(words) != _WORDS or words[0] != _PREFIX:
        return False
    _, node, boot_id, namespace, pid, start, machine, _ = words
    fields = {"node": node, "boot_id": boot_id, "owner_pid": pid, "owner_start": start, "machine_id": machine}
    return owner_is_dead({**fields, "pid_namespace": f"pid:[{namespace}]"})
