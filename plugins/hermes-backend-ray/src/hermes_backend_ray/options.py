"""The options of backend `ray`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import Field, field_validator

from hermes_pool import PoolOptions
from hermes_sandbox.remote import MachineOptions

CLIENT: Final = "ray://"
"""The prefix of Ray Client's addresses."""
NO_CLIENT: Final = "Ray Client (ray://) cannot carry a run: it reaches a proxy on the head node, and not the nodes"
WITHOUT_CLIENT: Final = "start the run on a node of the cluster, with address: auto or host:6379"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of a cluster's address; raise ValueError if it is not one."""
    if address.startswith(CLIENT):
        raise ValueError(f"{address}: {NO_CLIENT}; {WITHOUT_CLIENT}")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"expected the address of a Ray cluster, got {address!r}; write host:6379, auto or local")
    return host.strip("[]"), int(port)


class RayOptions(MachineOptions):
    """Options of backend `ray`."""

    address: str | None = None
    """`host:port` of the cluster; `auto` for RAY_ADDRESS or else the cluster that runs on this machine; `local` to
    start one here for this process. If None, the connection that this process has initialised already is used."""
    namespace: str | None = None
    """Ray's namespace of a connection that this backend opens."""
    connect_timeout: float = Field(default=20.0, gt=0)
    """Seconds in which the cluster must accept a connection."""
    actor_timeout: float = Field(default=25.0, gt=0)
    """Seconds in which Ray must start a node's host actor. Keep it below half of `pool.acquire_timeout`, so that a
    waiter for a slot is told why there is none."""
    num_cpus: float = Field(default=0.0, ge=0)
    """Processors that Ray reserves for a node's host actor."""
    memory_mb: int | None = Field(default=None, ge=1)
    """Memory that Ray reserves for a node's host actor, in MiB."""
    resources: Mapping[str, float] = Field(default_factory=dict)
    """Ray's custom resources that a host actor takes; only nodes that have them are used."""
    gone: tuple[str, ...] = ()
    """Addresses of machines that will not come back, as in messages of `gc`; their sandboxes count as removed."""
    forget_after: float = Field(default=7 * 86400.0, ge=0, allow_inf_nan=False)
    """Seconds after a sandbox's opening for which its lease is kept while its machine is down."""
    pool: PoolOptions = Field(default_factory=lambda: PoolOptions(max_hosts=16))
    """Slot pool of isolation `none`: how many hosts, with how many sandboxes each. `max_hosts` also bounds the nodes
    used at all."""

    @field_validator("address")
    @classmethod
    def _well_formed(cls, value: str | None) -> str | None:
        if value not in {None, "auto", "local"}:
            split_address(str(value))
        return value

    def host_needs(self) -> dict[str, float]:
        """Return the resources that a host actor takes of its node, by Ray's names."""
        wanted = dict(self.resources)
        if self.num_cpus:
            wanted["CPU"] = self.num_cpus
        if self.memory_mb is not None:
            wanted["memory"] = float(self.memory_mb << 20)
        return wanted
