"""The engine's address, read once from options and environment."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hermes_core.contracts.errors import ConfigError
from hermes_core.redaction import redact_address

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
_READ_AHEAD: Final = 1 << 20
"""Bytes buffered from the engine before reading pauses."""
_FORMS: Final = "unix:///var/run/docker.sock, tcp://HOST:2375 or, with certificates, tcp://HOST:2376"


@dataclass(frozen=True, slots=True)
class Address:
    """One engine's address. `shown` is the user's spelling without user and password."""

    shown: str
    socket: str | None = None
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """The address in aiodocker's form."""
        if self.socket is not None:
            return f"unix://{self.socket}"
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a separate connection, for a stream that outlives a request."""
        if self.socket is not None:
            return await asyncio.open_unix_connection(self.socket, limit=_READ_AHEAD)
        return await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=_READ_AHEAD)


def find_address(
    docker_host: str | None, tls_dir: Path | None = None, environ: Mapping[str, str] | None = None
) -> Address:
    """Return the address from the options and the environment: DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH.

    Raises:
        ConfigError: The address is not valid, or its certificates cannot be read.
    """
    env = os.environ if environ is None else environ
    given = docker_host or env.get("DOCKER_HOST") or DEFAULT_HOST
    shown = given if given.startswith("unix:") else redact_address(given)
    try:
        parts = urlsplit(given)
    except ValueError:
        raise ConfigError(f"expected {_FORMS} as docker_host, got {shown!r}", hint=_advice("")) from None
    if parts.scheme == "unix" and parts.path:
        return Address(shown, socket=parts.path)
    if parts.scheme not in {"tcp", "http", "https"} or not parts.hostname:
        raise ConfigError(f"expected {_FORMS} as docker_host, got {shown!r}", hint=_advice(parts.scheme))
    folder = tls_dir or _certificates_of(env)
    secure = folder is not None or parts.scheme == "https"
    try:
        port = parts.port or (2376 if secure else 2375)
    except ValueError:
        # Without the error's text: the text in the port's place may be part of a password.
        raise ConfigError(f"expected a port in docker_host, got {shown!r}", hint=f"docker_host: {_FORMS}") from None
    return Address(shown, host=parts.hostname, port=port, tls=_context(folder) if secure else None)


def _advice(scheme: str) -> str:
    if scheme == "ssh":
        forward = "ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST"
        return f"{forward} & and docker_host unix:///tmp/engine.sock"
    return f"unset DOCKER_HOST for {DEFAULT_HOST}"


def _certificates_of(env: Mapping[str, str]) -> Path | None:
    if not env.get("DOCKER_TLS_VERIFY"):
        return None
    return Path(env.get("DOCKER_CERT_PATH") or Path.home() / ".docker")


def _context(folder: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if folder is None:
        return context
    try:
        context.load_verify_locations(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
    except (OSError, ssl.SSLError) as error:
        hint = "put ca.pem, cert.pem and key.pem there, or set tls_dir or DOCKER_CERT_PATH"
        raise ConfigError(f"the engine's certificates in {folder} cannot be used: {error}", hint=hint) from error
    return context
