"""A caller of a backend that kills itself at one moment, for tests of what `SandboxReclaimer` then removes.

As a program it opens a sandbox, runs a command that leaves a process behind, and closes the sandbox, with the settings
that `run_dying_caller` passes as JSON. `PHASE` is "in use", or "before STEP" or "after STEP" for one of the steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.registries import isolated_registry


async def run_dying_caller(
    backend: str,
    options: Mapping[str, Any],
    leases: Path,
    isolation: str,
    phase: str,
    *,
    part: str,
    steps: Sequence[str],
) -> int:
    """Run a caller that is killed in a phase, and return its process id.

    The steps are methods of the backend's attribute `part`, which talks to the service.
    """
    settings = {"backend": backend, "options": dict(options), "leases": str(leases), "isolation": isolation}
    text = json.dumps({**settings, "phase": phase, "part": part, "steps": [*steps]})
    with subprocess.Popen([sys.executable, __file__, text], stderr=subprocess.PIPE, text=True) as caller:
        _, complaint = await asyncio.to_thread(caller.communicate)
    assert caller.returncode == -signal.SIGKILL, complaint
    return caller.pid


class DyingCaller:
    """The caller: it ends when it comes to its phase."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.phase = settings["phase"]
        name = settings["backend"]
        registry = isolated_registry(f"hermes_backend_{name}.plugin")
        self.backend: Any = registry.create("backend", name, settings["options"])
        self.backend.lease_dir = Path(settings["leases"])
        self.spec = SandboxSpec(isolation=settings["isolation"], network="none")
        part = getattr(self.backend, settings["part"])
        for step in settings["steps"]:
            setattr(part, step, self.wrap(step, getattr(part, step)))

    def come_to(self, moment: str) -> None:
        """Kill this process if the moment is the phase."""
        if moment == self.phase:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, step: str, work: Any) -> Any:
        """Return a method that comes to the moments before and after the step."""

        async def run_between(*arguments: Any, **named: Any) -> Any:
            self.come_to(f"before {step}")
            result = await work(*arguments, **named)
            self.come_to(f"after {step}")
            return result

        return run_between

    async def run(self) -> None:
        """Use a sandbox from its opening to its end."""
        sandbox = await self.backend.open(self.spec)
        await sandbox.exec("setsid sleep 600 & disown -a")
        self.come_to("in use")
        await sandbox.aclose()
        await self.backend.aclose()


if __name__ == "__main__":
    asyncio.run(DyingCaller(json.loads(sys.argv[1])).run())
