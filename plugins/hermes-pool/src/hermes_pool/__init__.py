"""Slot pools over many machines, for hermes-core."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "HostStartTimeoutError": "errors",
    "OptionNames": "options",
    "PoolOptions": "options",
    "PoolStats": "statistics",
    "Slot": "slots",
    "SlotPool": "pool",
    "SlotPoolConfig": "predecessor",
    "SlotState": "slots",
    "SlotUnavailable": "errors",
    "SlotUnavailableError": "errors",
    "WaitTimes": "statistics",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
