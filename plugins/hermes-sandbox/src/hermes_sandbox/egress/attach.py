"""Connects a proxy to the slot whose programs use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.protocol.client import EventHandler
from hermes_sandbox.protocol.slots import AgentSlot

if TYPE_CHECKING:
    from hermes_sandbox.egress.proxy import EgressProxy
    from hermes_sandbox.egress.resolver import Resolve

_EVENTS: Final = ("tunnel_open", "tunnel_data", "tunnel_credit", "tunnel_close")
_USER: Final = "hermes"
_VARIABLES: Final = tuple(
    spelling for name in ("http_proxy", "https_proxy", "all_proxy") for spelling in (name, name.upper())
)
NO_PROXY: Final[Mapping[str, str]] = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
"""Hosts that programs reach without the proxy: the sandbox itself."""


def refuse_hosts(spec: SandboxSpec) -> None:
    """Raise `SandboxRefusedError` for invalid hosts, and for hosts that would have no effect."""
    if spec.allow_hosts and spec.network != "allowlist":
        raise SandboxRefusedError(
            f"allow_hosts has no effect with network {spec.network!r}; got {', '.join(spec.allow_hosts)}",
            hint="--network allowlist, or leave sandbox.allow_hosts out",
        )
    if not spec.allow_hosts:
        return
    from hermes_sandbox.egress.rules import AllowList  # most sandboxes have no allowlist, and need no proxy

    try:
        AllowList(spec.allow_hosts)
    except ValueError as error:
        raise SandboxRefusedError(str(error), hint="change sandbox.allow_hosts") from error


def proxy_for(spec: SandboxSpec, resolve: Resolve | None) -> EgressProxy | None:
    """Return the proxy that a sandbox needs; None without an allowlist. Without `resolve` the system resolves names."""
    if spec.network != "allowlist":
        return None
    from hermes_sandbox.egress.proxy import EgressProxy  # only here, as above
    from hermes_sandbox.egress.resolver import resolve_name
    from hermes_sandbox.egress.rules import AllowList

    return EgressProxy(AllowList(spec.allow_hosts), resolve=resolve or resolve_name)


async def attach(proxy: EgressProxy, slot: AgentSlot, *, keep: Iterable[str]) -> AgentSlot:
    """Open a proxy port in a slot that was just opened or renewed, and serve it; closes the slot if that fails.

    `keep` are variables that the sandbox gets in another way.
    """
    receive = _receiver(proxy, slot)
    for name in _EVENTS:
        slot.on_event(name, receive)
    given = set(keep)
    request = {
        "op": "tunnel_listen",
        "credentials": f"{_USER}:{proxy.password}",
        "names": [name for name in _VARIABLES if name not in given],
    }
    try:
        await slot.request(request)
    except BaseException:
        await slot.aclose()
        raise
    return slot


def _receiver(proxy: EgressProxy, slot: AgentSlot) -> EventHandler:
    turn = asyncio.Lock()

    async def send(header: Mapping[str, Any], body: bytes) -> None:
        # Only one waits for room at a time: together they would fill the stream before the next command.
        async with turn:
            try:
                if slot.lost is None:
                    await slot.client.drain()
                slot.notify(header, body)
            except SandboxLostError as error:
                raise ConnectionResetError(error.message) from error

    def receive(header: dict[str, Any], body: bytes) -> None:
        proxy.receive(header, body, send)

    return receive
