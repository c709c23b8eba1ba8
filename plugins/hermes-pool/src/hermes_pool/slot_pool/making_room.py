"""Choice of the host that ends for waiters of another kind, when a member has as many hosts as it may have."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.host_kinds import Kind, Line
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost


def make_room(line: Line, fleets: Sequence[Fleet], now: float) -> None:
    """End an unused host of another kind, or a quarantined one, so that one can be started for the waiters of a line.

    If all hosts are in use and the line has no host at all, one host gives out no new slots, and ends with its last:
    no kind of host can keep another from being started.
    """
    hosts = [(fleet, kind, host) for fleet in fleets for kind in fleet.kinds.values() for host in kind.hosts]
    states = [host.state for _, _, host in hosts]
    closing = states.count(HostState.CLOSING)
    if closing >= line.missing:
        return
    others = [(fleet, host) for fleet, kind, host in hosts if _can_go(kind, host, line)]
    idle = [(fleet, host) for fleet, host in others if not host.seats]
    late = next(((fleet, host) for fleet, host in idle if host.is_late), None)
    if late is not None:
        late[0].give_up(late[1], now)
    elif idle:
        fleet, host = min(idle, key=lambda found: found[1].idle_since)
        fleet.end(host)
    # Draining hosts end with their last slots, so they count as closing.
    elif others and not line.has_host and closing + states.count(HostState.DRAINING) < line.missing:
        min((host for _, host in others), key=lambda host: len(host.seats)).make_room()


def _can_go(kind: Kind, host: PooledHost, line: Line) -> bool:
    if host.state is HostState.QUARANTINED:
        return True
    first = kind.first
    if host.state is HostState.STARTING:
        # Not if it is the only host of its own waiters, nor for a line that has a host.
        is_hope = len(kind.hosts) == 1 and first is not None
        return host.is_late and kind not in line.kinds and not line.has_host and not is_hope
    return host.state is HostState.READY and (first is None or first.rank > line.first.rank)
