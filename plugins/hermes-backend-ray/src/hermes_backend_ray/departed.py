"""What is left of a machine that is no part of the cluster any more."""

from __future__ import annotations

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.remote import CompletedCommand, RemoteProgram


class Departed:
    """A link to nowhere: nothing can be started, and there is nothing to remove."""

    alive = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Say that it is done: what ran there has ended, and Ray has no way to the machine's files."""
        del command, data, timeout
        return CompletedCommand(0, b"", "")

    async def start(self, command: str) -> RemoteProgram:
        """Refuse; raises `SandboxLostError`."""
        del command
        raise SandboxLostError(f"{self.name} is no part of the cluster any more")

    async def aclose(self) -> None:
        """Do nothing."""
