"""Errors of callers that get no slot."""

from __future__ import annotations

from hermes_core.contracts.errors import BackendError
from hermes_pool.statistics import PoolStats


class SlotUnavailableError(BackendError):
    """The queue for slots has not moved for too long, or is full; `stats` are the pool's statistics at that time."""

    def __init__(self, message: str, stats: PoolStats, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stats = stats


class HostStartTimeoutError(BackendError):
    """A host did not start within `start_timeout`; its start was cancelled."""


SlotUnavailable = SlotUnavailableError
"""hermes-agent's name of this error."""
