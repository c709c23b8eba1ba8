"""Reads the head of a request to the proxy, strictly: refuses what two parsers could read in two ways."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from hermes_sandbox.egress.rules import split_authority

MAX_HEAD: Final = 1 << 15
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) (HTTP/1\.[01])")
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_ABSOLUTE: Final = re.compile(r"http://([^/?#\\]*)([/?][^#]*)?", re.IGNORECASE)
_OURS: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields that apply to one connection, or that are written again."""


class RequestRefusedError(Exception):
    """A request is not forwarded but answered with a status and a text; `reason` is the text for the log."""

    def __init__(self, status: int, text: str, *, reason: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason or text


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A program's request to the proxy.

    `head` is what its origin gets, empty for CONNECT. `length` is the length of the body; None if it is in chunks.
    """

    method: str
    host: str
    port: int
    head: bytes
    length: int | None
    password: str | None

    @property
    def connects(self) -> bool:
        """Whether the program asks for a plain connection."""
        return self.method == "CONNECT"


def parse_request(data: bytes) -> ProxyRequest:
    """Read a head, up to and with its empty line; raises `RequestRefusedError`."""
    lines = data[: -len(b"\r\n\r\n")].split(b"\r\n")
    first = _LINE.fullmatch(lines[0])
    if first is None:
        raise RequestRefusedError(400, f"expected a request line, got {lines[0][:80]!r}")
    method, target, version = (part.decode("ascii") for part in first.groups())
    fields = [_field(line) for line in lines[1:]]
    password = _password(fields)
    if method == "CONNECT":
        host, port = _authority(target)
        if port is None:
            raise RequestRefusedError(400, f"CONNECT: expected host:port, got {target[:80]!r}")
        return ProxyRequest(method, host, port, b"", 0, password)
    length = _length(fields, version)
    host, port, path = _origin(target)
    lead = f"{method} {path} {version}\r\nHost: {_host_field(host, port)}\r\nConnection: close\r\n"
    return ProxyRequest(method, host, port, lead.encode() + _fields_to_forward(fields, length), length, password)


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise RequestRefusedError(400, f"expected a header field, got {line[:80]!r}")
    return found[1].lower(), found[2].strip(b" \t")


def _authority(text: str) -> tuple[str, int | None]:
    try:
        return split_authority(text)
    except ValueError as error:
        raise RequestRefusedError(400, str(error)[:400]) from None


def _origin(target: str) -> tuple[str, int, str]:
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        text = f"this is a proxy: expected CONNECT host:port or a target http://host/path, got {target[:80]!r}"
        raise RequestRefusedError(400, text)
    host, port = _authority(found[1])
    path = found[2] or "/"
    return host, port or 80, path if path.startswith("/") else "/" + path


def _host_field(host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port == 80 else f"{name}:{port}"


def _length(fields: list[tuple[bytes, bytes]], version: str) -> int | None:
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if codings != [b"chunked"] or lengths or version == "HTTP/1.0":
            raise RequestRefusedError(400, "the length of the body is ambiguous")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        raise RequestRefusedError(400, "the length of the body is ambiguous")
    return int(lengths[0])


def _fields_to_forward(fields: list[tuple[bytes, bytes]], length: int | None) -> bytes:
    named = (value.split(b",") for name, value in fields if name == b"connection")
    dropped = _OURS.union(option.strip().lower() for options in named for option in options)
    kept = [b"%s: %s\r\n" % field for field in fields if field[0] not in dropped]
    if length is None:
        kept.append(b"transfer-encoding: chunked\r\n")
    elif length or any(name == b"content-length" for name, _ in fields):
        kept.append(b"content-length: %d\r\n" % length)
    return b"".join(kept) + b"\r\n"


def _password(fields: list[tuple[bytes, bytes]]) -> str | None:
    values = [value for name, value in fields if name == b"proxy-authorization"]
    if len(values) != 1:
        return None
    scheme, _, encoded = values[0].partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None
