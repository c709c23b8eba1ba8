"""One sandbox's slot of a container, which may be the only one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backends import AgentSlot, SlotRequest, UserSlot


class ContainerSlot(UserSlot):
    """One sandbox's slot of an allocation; the allocation is recorded once it is known."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, provenance={**provenance, "allocation": {}}, **options)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end everything in the present one."""
        slot = await super().serve(request, previous)
        # The sandbox was created before its allocation existed.
        self.provenance["allocation"].update(self.host.provenance)
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root; the slot's user can still read and execute its files.

        Raises:
            SandboxRefusedError: Commands have no separate user here.
        """
        if "uid" not in self.slot_fields():
            raise SandboxRefusedError(
                "driver singularity cannot make a workspace read-only", hint="verify in a fresh sandbox instead"
            )
        await super().freeze()
