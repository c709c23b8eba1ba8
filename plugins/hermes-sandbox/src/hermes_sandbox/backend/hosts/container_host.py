"""A place whose agent is root inside, while the commands are another user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.protocol.client import AgentClient, AgentStream


class RootAgentHost(SandboxHost):
    """A container or the like, which ends as a whole; a subclass says how, and implements `lock`."""

    identity: tuple[int, int] = (0, 0)
    """uid and gid of the commands; those of root where they are the agent's own, or each slot has others."""

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the user of the commands, none where it is the agent's own; the place bounds their processes."""
        uid, gid = self.identity
        return {"uid": uid, "gid": gid, "processes": 0} if uid else {"processes": 0}

    async def restart(self, client: AgentClient) -> AgentStream:
        """Have the agent end all it has started and become a fresh Python: the place stays."""
        return await client.restart()

    async def freeze(self) -> None:
        """End the commands, and give the workspace to root, for reading and running only.

        Raises:
            SandboxRefusedError: The commands are root themselves, or a volume lies in the workspace.
        """
        if not self.identity[0]:
            raise SandboxRefusedError(
                "a workspace cannot be read-only for commands that are root",
                hint="leave the backend's option user out or set it to another number, or verify in a fresh sandbox",
            )
        await self.lock(self.workspace, self.identity)

    async def destroy(self) -> None:
        """Remove the place, if it could not be removed before."""
        await self.stop_all()


def refuse_mounted(folder: str, mounted: Iterable[str]) -> None:
    """Raise `SandboxRefusedError` where something is mounted in a directory that is to be made read-only."""
    if inside := [path for path in mounted if path == folder or path.startswith(f"{folder}/")]:
        raise SandboxRefusedError(
            f"a workspace cannot be read-only that has a volume in it: {', '.join(inside)}",
            hint="mount it elsewhere, or verify in a fresh sandbox",
        )
