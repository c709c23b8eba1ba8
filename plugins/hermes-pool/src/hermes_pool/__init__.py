"""Slot pools over many machines, for hermes-core."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_pool.errors import HostStartTimeoutError, SlotUnavailable, SlotUnavailableError
    from hermes_pool.options import OptionNames, PoolOptions
    from hermes_pool.pool import SlotPool
    from hermes_pool.predecessor import SlotPoolConfig
    from hermes_pool.slots import Slot, SlotState
    from hermes_pool.statistics import PoolStats, WaitTimes

__all__ = [
    "HostStartTimeoutError",
    "OptionNames",
    "PoolOptions",
    "PoolStats",
    "Slot",
    "SlotPool",
    "SlotPoolConfig",
    "SlotState",
    "SlotUnavailable",
    "SlotUnavailableError",
    "WaitTimes",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".errors": "HostStartTimeoutError SlotUnavailable SlotUnavailableError",
        ".options": "OptionNames PoolOptions",
        ".pool": "SlotPool",
        ".predecessor": "SlotPoolConfig",
        ".slots": "Slot SlotState",
        ".statistics": "PoolStats WaitTimes",
    },
)
