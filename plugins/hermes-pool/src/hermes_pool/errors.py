"""Why no slot is to be had."""

from __future__ import annotations

from hermes_core.contracts.errors import BackendError
from hermes_pool.statistics import PoolStats


class SlotUnavailableError(BackendError):
    """The queue for slots does not move any more, or too many wait; `stats` is the pool as it was then."""

    def __init__(self, message: str, stats: PoolStats, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stats = stats


class HostStartTimeoutError(BackendError):
    """A host was not there within `start_timeout`; what its backend was doing has been cancelled."""


SlotUnavailable = SlotUnavailableError
"""The predecessor's word for it."""
