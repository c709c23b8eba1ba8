"""What the engine has, as its own client program says."""

from __future__ import annotations

import subprocess


def containers_of(pid: int) -> set[str]:
    """Return the containers that a process of this machine has made, whatever else uses the engine."""
    asked = ["docker", "ps", "-aq", "--filter", f"label=hermes.lease.owner_pid={pid}"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())
