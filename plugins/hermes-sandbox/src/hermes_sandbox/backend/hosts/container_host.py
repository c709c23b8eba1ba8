"""A host whose agent is root inside, while commands run as another user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.streams import AgentStream


class RootAgentHost(SandboxHost):
    """A container or similar, which ends as a whole; a subclass ends it, and implements `lock`."""

    identity: tuple[int, int] = (0, 0)
    """uid and gid of the commands; root's if they run as the agent's user, or if each slot has its own."""

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the user of the commands, none if it is the agent's; the host bounds their processes."""
        uid, gid = self.identity
        return {"uid": uid, "gid": gid, "processes": 0} if uid else {"processes": 0}

    async def restart(self, client: AgentClient) -> AgentStream:
        """Let the agent end everything it started and become a new Python; the host stays."""
        return await client.restart()

    async def freeze(self) -> None:
        """End the commands, and give the workspace to root, readable and executable only.

        Raises:
            SandboxRefusedError: The commands run as root, or a volume is mounted in the workspace.
        """
        if not self.identity[0]:
            raise SandboxRefusedError(
                "a workspace cannot be read-only for commands that run as root",
                hint="leave the backend's option user out or set it to another number, or verify in a fresh sandbox",
            )
        await self.lock(self.workspace, self.identity)

    async def destroy(self) -> None:
        """Remove the host, if that failed before."""
        await self.stop_all()


def refuse_mounted(folder: str, mounted: Iterable[str]) -> None:
    """Raise `SandboxRefusedError` if something is mounted in a directory that must become read-only."""
    if inside := [path for path in mounted if path == folder or path.startswith(f"{folder}/")]:
        raise SandboxRefusedError(
            f"a workspace with a volume in it cannot be read-only: {', '.join(inside)}",
            hint="mount it elsewhere, or verify in a fresh sandbox",
        )
