"""The embedded model `nop`: does nothing, as a baseline for every reward."""

from __future__ import annotations

from typing import ClassVar

from hermes_core.contracts.model import ModelReply, ModelRequest
from hermes_models.embedded.embedded import EmbeddedModel

NOTHING = "Nothing was done."


class NopModel(EmbeddedModel):
    """Answers at once and calls no tool."""

    name: ClassVar[str] = "nop"

    async def chat(self, request: ModelRequest) -> ModelReply:  # noqa: ARG002 - the contract's signature
        """End the rollout."""
        return ModelReply(content=NOTHING)
