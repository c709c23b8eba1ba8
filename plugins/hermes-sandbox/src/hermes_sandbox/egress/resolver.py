"""Connects to a host name: resolves it once, on the caller's side, and connects to exactly that address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from hermes_sandbox.egress.request import RequestRefusedError
from hermes_sandbox.egress.rules import is_address, is_public
from hermes_sandbox.egress.tunnel import CHUNK

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name; raises OSError."""
_RESOLVE_SECONDS: Final = 15.0
_CONNECT_SECONDS: Final = 10.0
_ADDRESSES: Final = 4
_LOOKUPS: Final = 8


class NotReachableError(RequestRefusedError):
    """The origin is allowed, but does not answer."""


@cache
def _threads() -> ThreadPoolExecutor:
    # A separate pool: a name whose server does not answer must not hold a thread that the whole process shares.
    return ThreadPoolExecutor(_LOOKUPS, "hermes-egress")


async def resolve_name(host: str) -> Sequence[str]:
    """Return the addresses that the system's resolver finds."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_threads(), _look_up, host)
    return list(dict.fromkeys(found))


def _look_up(host: str) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


async def choose_addresses(host: str, *, private: bool, resolve: Resolve) -> list[str]:
    """Return the addresses of a host that may be connected to; raises `RequestRefusedError` if there is none."""
    found = [host] if is_address(host) else await _addresses_of(host, resolve)
    usable = [address for address in found if private or is_public(address)]
    if not usable:
        raise RequestRefusedError(
            403,
            f"{host} leads to {found[0]}, which is not a public address; "
            "allow_hosts must list it with @private after it for that",
        )
    return usable[:_ADDRESSES]


async def _addresses_of(host: str, resolve: Resolve) -> Sequence[str]:
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await resolve(host)
    except TimeoutError:
        raise NotReachableError(504, f"{host}: its name was not resolved within {_RESOLVE_SECONDS:g} s") from None
    except (OSError, UnicodeError) as error:
        raise NotReachableError(502, f"{host}: its address cannot be found: {error}") from None
    if not found:
        raise NotReachableError(502, f"{host}: its name has no address")
    return found


async def connect(host: str, port: int, addresses: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers; raises `NotReachableError`."""
    problem = NotReachableError(502, f"{host}:{port} cannot be reached")
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(address, port, limit=CHUNK)
        except TimeoutError:
            problem = NotReachableError(504, f"{host}:{port} does not answer within {_CONNECT_SECONDS:g} s")
        except OSError as error:
            problem = NotReachableError(502, f"{host}:{port} cannot be reached: {error}")
    raise problem
