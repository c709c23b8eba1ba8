"""Nomad's address and credentials; the only module that reads the environment."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from hermes_backend_nomad.options import DEFAULT_ADDRESS, NomadOptions
from hermes_core.contracts.errors import ConfigError

_FILES: Final = {"ca_cert": "NOMAD_CACERT", "client_cert": "NOMAD_CLIENT_CERT", "client_key": "NOMAD_CLIENT_KEY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address with its headers and TLS settings; a user and password are in the headers, never in `url`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def has_token(self) -> bool:
        """Whether requests carry an ACL token."""
        return "X-Nomad-Token" in self.headers


def find_address(options: NomadOptions, environment: Mapping[str, str]) -> Address:
    """Return the address from the options; Nomad's own variables fill in missing ones.

    Raises:
        ConfigError: A certificate or key cannot be read.
    """
    url, login = without_login((options.nomad_address or environment.get("NOMAD_ADDR") or DEFAULT_ADDRESS).rstrip("/"))
    token = environment.get("NOMAD_TOKEN") if options.token is None else options.token.get_secret_value()
    query = {
        "region": options.region or environment.get("NOMAD_REGION"),
        "namespace": options.namespace or environment.get("NOMAD_NAMESPACE"),
    }
    return Address(
        url=url,
        headers={**({"X-Nomad-Token": token} if token else {}), **({"Authorization": login} if login else {})},
        query={name: value for name, value in query.items() if value},
        tls=_context(options, environment) if url.startswith("https://") else None,
        server_name=options.tls_server_name or environment.get("NOMAD_TLS_SERVER_NAME") or None,
    )


def without_login(url: str) -> tuple[str, str | None]:
    """Return an address without user and password, and the header with them for a proxy in front of Nomad."""
    scheme, separator, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    if not login:
        return url, None
    user, _, password = login.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return f"{scheme}{separator}{place}", f"Basic {base64.b64encode(pair).decode('ascii')}"


def _context(options: NomadOptions, environment: Mapping[str, str]) -> ssl.SSLContext:
    files = {name: getattr(options, name) or environment.get(variable) for name, variable in _FILES.items()}
    try:
        context = ssl.create_default_context(cafile=files["ca_cert"])
        if files["client_cert"]:
            context.load_cert_chain(files["client_cert"], files["client_key"])
    except OSError as error:
        named = ", ".join(f"{name} {path}" for name, path in files.items() if path)
        raise ConfigError(
            f"the certificates for Nomad cannot be read ({named}): {error}",
            hint="set the options ca_cert, client_cert and client_key to PEM files",
        ) from error
    return context
