"""Decides which hosts a sandbox may reach, by the entries of `allow_hosts`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?")
_USUAL_PORTS: Final = frozenset({80, 443})
_PRIVATE: Final = "@private"
_INSIDE: Final = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
"""Metadata addresses of clouds that look public; all others are link-local or private."""
_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def normal_host(text: str) -> str:
    """Return a host in its form for comparison: lower case, without the last dot; an address in its usual form.

    Raises:
        ValueError: Neither a name nor an address in its usual form, such as `0x7f000001` and `127.1`.
    """
    if text.startswith("[") and text.endswith("]") and "%" not in text:
        return str(IPv6Address(text[1:-1]))
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise ValueError(f"expected an address as four decimal numbers, got {text!r}") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"expected a host name, got {text!r}")
    return host


def split_authority(text: str) -> tuple[str, int | None]:
    """Return the normal host and the port of `host` or `host:port`; raises ValueError for anything else.

    User information is refused: the text before an `@` can look like the host.
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a host, or a host and a port, got {text!r}")
    port = found["port"]
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"expected a port from 1 to 65535, got {text!r}")
    return normal_host(found["host"]), None if port is None else int(port)


def is_address(host: str) -> bool:
    """Tell whether a host as `normal_host` returns it is an address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def is_public(address: str) -> bool:
    """Tell whether an address is on the public internet: not loopback, link-local, private or metadata."""
    try:
        ip = ip_address(address)
    except ValueError:  # with a zone, which only link-local ones have
        return False
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast and not ip.is_reserved and not any(ip in net for net in _INSIDE)
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(IPv4Address(int(ip) & 0xFFFFFFFF))
    carried = [str(address) for address in inner if address is not None]
    if not all(map(is_public, carried)):
        return False
    return ip.ipv4_mapped is not None or ip in _NAT64 or (ip in _UNICAST and ip.is_global)


@dataclass(frozen=True, slots=True)
class _Entry:
    host: str
    subdomains: bool
    ports: frozenset[int]
    private: bool

    def covers(self, host: str) -> bool:
        return host.endswith("." + self.host) if self.subdomains else host == self.host


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one destination; `private` tells whether addresses that are not public may be used."""

    allowed: bool
    reason: str
    private: bool = False


class AllowList:
    """The hosts that may be reached, by name.

    An entry is `example.org`, `*.example.org` (every name below it, not itself), or a literal address, each optionally
    with `:port`; without one the ports are 80 and 443. Names that lead to loopback, link-local, private or metadata
    addresses are refused unless the entry ends in `@private`, as in `git.corp.example:8443@private`.

    Raises:
        ValueError: An entry in another form; the message says what to write instead.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [_entry(text) for text in entries]

    def judge(self, host: str, port: int) -> Verdict:
        """Decide about a host as `normal_host` returns it."""
        known = [entry for entry in self._entries if entry.covers(host) and not (entry.subdomains and is_address(host))]
        fitting = [entry for entry in known if port in entry.ports]
        if fitting:
            return Verdict(allowed=True, reason="allow_hosts", private=any(entry.private for entry in fitting))
        if known:
            ports = " and ".join(str(port) for port in sorted(frozenset[int]().union(*(e.ports for e in known))))
            return Verdict(allowed=False, reason=f"allow_hosts lists {host} with port {ports} only")
        return Verdict(allowed=False, reason=f"{host} is not in allow_hosts")


def _entry(text: str) -> _Entry:
    private = text.endswith(_PRIVATE)
    rest = text.removesuffix(_PRIVATE)
    subdomains = rest.startswith("*.")
    try:
        host, port = split_authority(_in_ascii(rest.removeprefix("*.")))
    except ValueError as error:
        raise ValueError(f"allow_hosts has {text!r}: {error}; write a host name, *.name or name:port") from None
    if subdomains and is_address(host):
        raise ValueError(f"allow_hosts has {text!r}: an address has no names below it")
    if is_address(host) and not private and not is_public(host):
        raise ValueError(f"allow_hosts has {text!r}, which is not a public address; write {text + _PRIVATE!r}")
    return _Entry(host, subdomains, _USUAL_PORTS if port is None else frozenset({port}), private)


def _in_ascii(text: str) -> str:
    if text.isascii():
        return text
    host, colon, port = text.partition(":")
    try:
        encoded = host.encode("idna")
        unchanged = encoded.decode("idna") == host.lower()
    except UnicodeError as error:
        raise ValueError(f"no international name ({error})") from None
    if not unchanged:
        # The old rules turn some letters into others, such as ß into ss, which can be another owner's name.
        raise ValueError("its spelling has several encodings: write the name in ASCII, xn--…")
    return encoded.decode("ascii") + colon + port
