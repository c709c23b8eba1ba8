"""The predecessor's records of what a pool has."""

from __future__ import annotations

from collections.abc import Iterator

from hermes_pool.pooled_host import HostState, PooledHost
from hermes_pool.slots import Slot, SlotState

_OF_HOST = {
    HostState.READY: SlotState.ACQUIRED,
    HostState.DRAINING: SlotState.ACQUIRED,
    HostState.QUARANTINED: SlotState.ERROR,
    HostState.CLOSING: SlotState.RELEASING,
}


def slots_of(host: PooledHost) -> Iterator[Slot]:
    """Return the slots of a host: those that are taken, then those that it would give."""
    facts = {"host_state": host.state.value, **({"complaint": host.complaint} if host.complaint else {})}
    for seat in host.seats.values():
        state = SlotState.ERROR if host.lost is not None else _OF_HOST[host.state]
        yield Slot(
            slot_id=f"slot_{seat.number}",
            alloc_id=host.id,
            container_addr=str(host.place.provenance.get("host", "")),
            workspace_dir=getattr(host.place, "workspace", ""),
            state=state,
            trajectory_id=seat.rollout_id,
            metadata=dict(facts),
        )
    for ahead in range(1, host.free + 1):
        yield Slot(slot_id=f"slot_{host.given + ahead}", alloc_id=host.id, metadata=dict(facts))
