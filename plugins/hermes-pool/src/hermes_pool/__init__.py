"""Slot pools over many machines, for hermes-core."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_pool.errors import HostStartTimeoutError, SlotUnavailable, SlotUnavailableError
    from hermes_pool.hermes_agent_config import SlotPoolConfig
    from hermes_pool.options import OptionNames, PoolOptions
    from hermes_pool.slot_pool.pool import SlotPool
    from hermes_pool.slot_pool.slot_records import Slot, SlotState
    from hermes_pool.statistics import PoolStats, WaitTimes

__all__ = [
    "HostStartTimeoutError", "OptionNames", "PoolOptions", "PoolStats", "Slot", "SlotPool", "SlotPoolConfig",
    "SlotState", "SlotUnavailable", "SlotUnavailableError", "WaitTimes",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".errors": "HostStartTimeoutError SlotUnavailable SlotUnavailableError",
            ".options": "OptionNames PoolOptions",
            ".hermes_agent_config": "SlotPoolConfig",
            ".slot_pool.pool": "SlotPool",
            ".slot_pool.slot_records": "Slot SlotState",
            ".statistics": "PoolStats WaitTimes",
        },
    )
