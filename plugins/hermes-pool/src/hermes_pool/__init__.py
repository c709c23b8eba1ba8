"""Slot pools over many machines, for hermes-core."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_pool.errors import HostStartTimeoutError, SlotUnavailable, SlotUnavailableError
    from hermes_pool.options import OptionNames, PoolOptions
    from hermes_pool.predecessor_config import SlotPoolConfig
    from hermes_pool.slot_pool.pool import SlotPool
    from hermes_pool.slot_pool.slot_records import Slot, SlotState
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

_HOMES = {
    "HostStartTimeoutError": "errors",
    "OptionNames": "options",
    "PoolOptions": "options",
    "PoolStats": "statistics",
    "Slot": "slot_pool.slot_records",
    "SlotPool": "slot_pool.pool",
    "SlotPoolConfig": "predecessor_config",
    "SlotState": "slot_pool.slot_records",
    "SlotUnavailable": "errors",
    "SlotUnavailableError": "errors",
    "WaitTimes": "statistics",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
