"""Where a server is: the address that is called, and the one that may be shown."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from hermes_core.contracts.errors import ConfigError

_EXAMPLE = "--model http://HOST:PORT/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The addresses of one OpenAI-compatible server.

    `shown` has neither user, password nor query string, for each of them can be a secret. `authorization` is the header
    made from a user and password in the URL.
    """

    shown: str
    chat: str = field(repr=False)
    models: str = field(repr=False)
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a base URL; raises `ConfigError` that says what is wrong with it."""
        parts = _split(url)
        host = parts.netloc.rpartition("@")[2]
        base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        if base.endswith(("/chat/completions", "/completions")):
            raise ConfigError(
                f"the model URL is the server's base, found {base}",
                hint=f"--model {base.removesuffix('/completions').removesuffix('/chat')}",
            )
        query = f"?{parts.query}" if parts.query else ""
        return cls(
            shown=base,
            chat=f"{base}/chat/completions{query}",
            models=f"{base}/models{query}",
            authorization=_basic_authorization(parts),
        )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:  # a bad port or a broken IPv6 address; its text may repeat a password
        raise ConfigError(
            "a model URL like http://HOST:PORT/v1 was wanted, found one that cannot be read", hint=_EXAMPLE
        ) from error
    if not usable:
        shown = url.strip().rpartition("@")[2]
        raise ConfigError(f"a model URL like http://HOST:PORT/v1 was wanted, found {shown!r}", hint=_EXAMPLE)
    return parts


def _basic_authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
