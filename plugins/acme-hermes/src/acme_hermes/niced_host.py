"""A place on this machine, at a low priority."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from hermes_sandbox.backends import PYTHON_FLAGS, AgentStream, SandboxHost
from hermes_sandbox.local import kill_processes, remove_group

_GRACE: Final = 10.0
"""Seconds the agent has to end everything below it once its input is closed."""


class NicedHost(SandboxHost):
    """A directory and one agent under `nice`."""

    def __init__(self, root: Path, sandbox_id: str, niceness: int) -> None:
        self.workspace = str(root / "workspace")
        self.state_dir = str(root / "state")
        self.provenance = {"niceness": niceness}
        self._root = root
        self._id = sandbox_id
        self._command = ["nice", "-n", str(niceness), sys.executable, *PYTHON_FLAGS]
        self._agent: asyncio.subprocess.Process | None = None

    async def start_agent(self) -> AgentStream:
        """Start a Python at low priority; nothing of the caller's environment goes with it."""
        pipe = asyncio.subprocess.PIPE
        self._agent = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        return AgentStream(self._agent.stdout, self._agent.stdin)

    async def stop_all(self) -> None:
        """Close the agent's input, on which it ends everything; what outlives a killed agent is found by its mark."""
        agent, self._agent = self._agent, None
        if agent is None:
            return
        assert agent.stdin is not None
        agent.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.wait(), _GRACE)
        if agent.returncode is None:
            agent.kill()
            await agent.wait()
        await remove_group(self._id)
        await kill_processes(self._id, self._root)

    async def destroy(self) -> None:
        """Remove the directory."""
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)
