"""One sandbox's slot of a container, or its container to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_backend_nomad.host import AllocationHost
from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.sandbox.sharing import SharedPlace
from hermes_core.sandbox.slots import AgentSlot, SlotRequest


class ContainerSlot(SharedPlace):
    """One sandbox's slot of an allocation.

    Args:
        is_alone: Whether nobody else may have been in the container before, or be in it after.
        uses: How many slots a container may have had before it takes nobody new: what they left in /tmp stays in it.
        provenance: What is recorded.
    """

    def __init__(
        self, *arguments: Any, is_alone: bool, uses: int, provenance: Mapping[str, Any], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._is_alone = is_alone
        self._uses = uses
        self.provenance: dict[str, Any] = {**provenance, "allocation": {}}

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end all that runs in the present one; the last one that a container takes closes its door."""
        slot = await super().serve(request, previous)
        if self._seat is not None:
            if self._is_alone or self._seat.number >= self._uses:
                self._seat.spoil()
            # Handed on when the sandbox was made, before there was an allocation.
            self.provenance["allocation"].update(self._seat.host.provenance)
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, for the slot's user to read and run.

        Raises:
            SandboxRefusedError: Commands have no user of their own here.
        """
        user = self.slot_fields().get("uid")
        if user is None:
            raise SandboxRefusedError(
                "driver singularity cannot make a workspace read-only", hint="verify in a fresh sandbox instead"
            )
        if self._seat is None:
            raise SandboxLostError("the slot of a container has been given back")
        assert isinstance(self._seat.host, AllocationHost)
        await self._seat.host.lock(self.workspace, user)
