"""Records of a pool's slots, with hermes-agent's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from hermes_pool.slot_pool.pooled_host import HostState, PooledHost


class SlotState(StrEnum):
    """The state of a slot; the words are hermes-agent's."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    EXECUTING = "executing"
    RELEASING = "releasing"
    ERROR = "error"


@dataclass(slots=True, kw_only=True)
class Slot:
    """A record of one slot of a host at one moment; changing it does not change the slot.

    `alloc_id` is the host's id, `container_addr` its address, if the backend records one. A number in `slot_id` is used
    once: the next sandbox gets another number, and another `workspace_dir`.
    """

    slot_id: str
    alloc_id: str
    container_addr: str = ""
    workspace_dir: str = ""
    state: SlotState = SlotState.AVAILABLE
    trajectory_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Host and slot, unique in the pool."""
        return f"{self.alloc_id}:{self.slot_id}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return {
            "slot_id": self.slot_id,
            "alloc_id": self.alloc_id,
            "container_addr": self.container_addr,
            "workspace_dir": self.workspace_dir,
            "state": self.state.value,
            "trajectory_id": self.trajectory_id,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the record of which `to_dict` returned the values.

        Raises:
            ValueError: The state is unknown.
            TypeError: A key is unknown.
        """
        return cls(**{**data, "state": SlotState(data.get("state", "available"))})


_OF_HOST = {
    HostState.READY: SlotState.ACQUIRED,
    HostState.DRAINING: SlotState.ACQUIRED,
    HostState.QUARANTINED: SlotState.ERROR,
    HostState.CLOSING: SlotState.RELEASING,
}


def slots_of(host: PooledHost) -> Iterator[Slot]:
    """Yield the records of a host's slots: those in use, then those that it would give out now."""
    facts = {"host_state": host.state.value, **({"complaint": host.complaint} if host.complaint else {})}
    for seat in host.seats.values():
        state = SlotState.ERROR if host.lost is not None else _OF_HOST[host.state]
        yield Slot(
            slot_id=f"slot_{seat.number}",
            alloc_id=host.id,
            container_addr=str(host.sandbox_host.provenance.get("host", "")),
            workspace_dir=getattr(host.sandbox_host, "workspace", ""),
            state=state,
            trajectory_id=seat.rollout_id,
            metadata=dict(facts),
        )
    for ahead in range(1, host.free + 1):
        yield Slot(slot_id=f"slot_{host.given + ahead}", alloc_id=host.id, metadata=dict(facts))
