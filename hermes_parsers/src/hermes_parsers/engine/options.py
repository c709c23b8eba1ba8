"""The options of every parser, as a configuration writes them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ParserOptions(BaseModel):
    """Options of a tool-call parser."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    promote_drafts: bool = Field(
        default=False, description="Turn calls that were drafted in reasoning into calls when no call follows."
    )
    reasoning_opened: bool = Field(default=False, description="The prompt has already opened the reasoning.")
