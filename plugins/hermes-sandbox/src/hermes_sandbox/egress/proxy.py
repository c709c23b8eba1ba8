"""The proxy of a sandbox without a network: it forwards allowed requests and logs all."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from hermes_sandbox.agent.tunnels import TUNNELS_MAX
from hermes_sandbox.egress.log import EgressDecision, EgressLog
from hermes_sandbox.egress.relay import Exchange
from hermes_sandbox.egress.request import MAX_HEAD, ProxyRequest, RequestRefusedError, parse_request
from hermes_sandbox.egress.resolver import Resolve, choose_addresses, connect, resolve_name
from hermes_sandbox.egress.rules import AllowList
from hermes_sandbox.egress.tunnel import Send, Tunnel

_CONNECTIONS: Final = 64
"""Connections of one sandbox to the outside at once; each is a descriptor of the caller."""


class EgressProxy:
    """Speaks HTTP proxy (CONNECT, and absolute targets) over tunnels, one request and one target for each.

    Args:
        allow: The hosts that may be reached.
        resolve: Turns a name into addresses, on the caller's side.
        patience: Seconds for a request to be whole, for one of the connections to be free, and for the next byte of a
            connection that one side has closed.
    """

    def __init__(self, allow: AllowList, *, resolve: Resolve = resolve_name, patience: float = 30.0) -> None:
        self.log = EgressLog()
        self.password = secrets.token_urlsafe(18)
        """The password of the sandbox's programs, so that others behind the same agent cannot use its hosts."""
        self._allow = allow
        self._resolve = resolve
        self._patience = patience
        self._tunnels: dict[int, tuple[Tunnel, asyncio.Task[None]]] = {}
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    def receive(self, header: Mapping[str, Any], body: bytes, send: Send) -> None:
        """Take a frame from the agent, which is not trusted."""
        number, event = header.get("tunnel"), header["event"]
        if not isinstance(number, int):
            return
        if event == "tunnel_open":
            self._begin(number, send)
            return
        tunnel, _ = self._tunnels.get(number, (None, None))
        if tunnel is None:
            return  # It is closed here, but the agent does not know yet.
        if event == "tunnel_data":
            tunnel.feed(body)
        elif event == "tunnel_credit":
            tunnel.grant(header.get("size"))
        elif event == "tunnel_close":
            tunnel.cut()

    def _begin(self, number: int, send: Send) -> None:
        # The agent allows this many; one that it closed may not be removed here yet.
        if number in self._tunnels or len(self._tunnels) >= 2 * TUNNELS_MAX:
            return
        tunnel = Tunnel(number, send)
        task = asyncio.ensure_future(self.serve(tunnel))
        self._tunnels[number] = (tunnel, task)
        task.add_done_callback(lambda _: self._tunnels.pop(number, None))

    async def aclose(self) -> None:
        """Close every connection; the log stays. Tunnels of a new agent may follow."""
        tasks = [task for _, task in self._tunnels.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def serve(self, tunnel: Tunnel) -> None:
        """Serve one connection of a program to its end."""
        broken = True
        try:
            broken = await self._serve(tunnel)
        except (ConnectionError, asyncio.IncompleteReadError, OSError):
            pass  # One of the two ends has gone; closing informs the other.
        finally:
            with contextlib.suppress(ConnectionError):
                await tunnel.close(broken=broken)

    async def _serve(self, tunnel: Tunnel) -> bool:
        decision = EgressDecision(time.time(), "", 0, allowed=False, reason="")
        began = time.monotonic()
        try:
            request = await _read_request(tunnel, self._patience)
            decision.host, decision.port = request.host, request.port
            addresses = await self._decide(request)
            decision.allowed, decision.reason = True, "allow_hosts"
        except RequestRefusedError as error:
            decision.reason = error.reason
            if error.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
                self.log.unauthorized += 1
            else:
                self.log.add(decision)
            await _refuse(tunnel, error)
            return False
        self.log.add(decision)
        try:
            return await self._forward(tunnel, request, addresses, decision)
        finally:
            decision.seconds = round(time.monotonic() - began, 3)

    async def _decide(self, request: ProxyRequest) -> list[str]:
        if not hmac.compare_digest(request.password or "", self.password):
            raise RequestRefusedError(407, "the proxy needs the user and password of this sandbox's http_proxy")
        verdict = self._allow.judge(request.host, request.port)
        if not verdict.allowed:
            raise RequestRefusedError(
                403,
                f"{request.host}:{request.port} may not be reached: {verdict.reason} "
                "(setting sandbox.allow_hosts of this run, network allowlist)",
                reason=verdict.reason,
            )
        return await choose_addresses(request.host, private=verdict.private, resolve=self._resolve)

    async def _forward(
        self, tunnel: Tunnel, request: ProxyRequest, addresses: list[str], decision: EgressDecision
    ) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                await self._turns.acquire()
        except TimeoutError:
            decision.reason = f"more than {_CONNECTIONS} connections at once"
            await _refuse(tunnel, RequestRefusedError(503, decision.reason))
            return False
        try:
            reader, writer = await connect(request.host, request.port, addresses)
        except RequestRefusedError as error:
            self._turns.release()
            decision.reason = error.reason
            await _refuse(tunnel, error)
            return False
        try:
            count = partial(self.log.count, decision)
            await Exchange(tunnel, reader, writer, count=count, patience=self._patience).run(request)
        except RequestRefusedError as error:
            decision.reason = error.reason
            return True
        finally:
            writer.transport.abort()
            self._turns.release()
        return False


async def _read_request(tunnel: Tunnel, patience: float) -> ProxyRequest:
    try:
        async with asyncio.timeout(patience):
            head = await tunnel.head()
    except TimeoutError:
        raise RequestRefusedError(408, f"no complete request within {patience:g} s") from None
    except asyncio.LimitOverrunError:
        raise RequestRefusedError(431, f"the head of a request may have at most {MAX_HEAD} bytes") from None
    except asyncio.IncompleteReadError as error:
        raise RequestRefusedError(400, f"the request ended in its head: {error.partial[:80]!r}") from None
    return parse_request(head)


async def _refuse(tunnel: Tunnel, error: RequestRefusedError) -> None:
    body = f"hermes egress proxy: {error.text}\n".encode("ascii", "backslashreplace")
    challenge = (
        'Proxy-Authenticate: Basic realm="hermes"\r\n'
        if error.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        else ""
    )
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\n{challenge}Connection: close\r\n\r\n"
    )
    await tunnel.write(head.encode() + body)
