"""The configuration of a tool executor."""

from __future__ import annotations

import logging
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hermes_tool_services.policy import DEFAULT_TIMEOUT, Policy

_LOG: Final = logging.getLogger(__name__)


class ToolExecutorConfig(BaseModel):
    """The configuration of a tool executor; an unknown field is an error.

    `batch_window_ms` and `max_batch_size` exist for hermes-agent's users and have no effect, because calls are sent at
    once and never in batches. Setting one logs a warning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_window_ms: int = Field(default=20, ge=0)
    max_batch_size: int = Field(default=200, ge=1)
    allow_network: bool = True
    require_sandbox: bool = False
    require_stateful_sandbox: bool = False
    tool_server_url: str | None = None
    """`inprocess`: external tools run in this process. None: they are refused."""
    tool_server_token: str | None = None
    default_timeout_s: float = Field(default=DEFAULT_TIMEOUT, ge=1, le=600)
    idle_timeout_s: float = Field(default=3600.0, gt=0)
    """Seconds without a call after which a trajectory is released."""
    close_timeout_s: float = Field(default=60.0, gt=0)
    """Time limit of `close` in seconds."""

    @model_validator(mode="after")
    def _note_batches(self) -> Self:
        for name in sorted(self.model_fields_set & {"batch_window_ms", "max_batch_size"}):
            # A window of 0 is the actual behaviour.
            if (value := getattr(self, name)) != 0:
                _LOG.warning("%s: %s has no effect: calls are sent at once, never in batches; remove it", name, value)
        return self

    def policy(self) -> Policy:
        """Return the policy for commands."""
        return Policy(
            allow_network=self.allow_network,
            require_sandbox=self.require_sandbox,
            require_stateful_sandbox=self.require_stateful_sandbox,
        )
