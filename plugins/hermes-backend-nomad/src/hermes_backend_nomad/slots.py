"""One sandbox's slot of a container, or its container to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backends import AgentSlot, SlotRequest, UserSlot


class ContainerSlot(UserSlot):
    """One sandbox's slot of an allocation, which is recorded when there is one."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, provenance={**provenance, "allocation": {}}, **options)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end all that runs in the present one."""
        slot = await super().serve(request, previous)
        # Handed on when the sandbox was made, before there was an allocation.
        self.provenance["allocation"].update(self.place.provenance)
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, for the slot's user to read and run.

        Raises:
            SandboxRefusedError: Commands have no user of their own here.
        """
        if "uid" not in self.slot_fields():
            raise SandboxRefusedError(
                "driver singularity cannot make a workspace read-only", hint="verify in a fresh sandbox instead"
            )
        await super().freeze()
