"""The address of a server: one form to call, and one without secrets to display."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from hermes_core.contracts.errors import ConfigError

_EXAMPLE = "--model http://HOST:PORT/v1"
_ENDPOINTS = ("/chat/completions", "/completions", "/inference/v1/generate", "/generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The base address of one server.

    `shown` leaves out the user, password and query string, since each can be a secret. `authorization` is the header
    built from a user and password in the URL. `curl` is the displayable address of an endpoint that answers a GET,
    and `misplaced` is the hint for a missing endpoint; both are for error messages.
    """

    shown: str
    query: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)
    curl: str
    misplaced: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse the base URL of an OpenAI-compatible server; raise `ConfigError` if it is not valid.

        A URL without a path gets `/v1` appended, because that is where these servers answer.
        """
        parts, base = _base(url)
        if not parts.path.strip("/"):
            base = f"{base}/v1"
        curl = f"{base}/models"
        return cls(
            shown=base,
            query=f"?{parts.query}" if parts.query else "",
            authorization=_basic_authorization(parts),
            curl=curl,
            misplaced=f"does the URL end in /v1? which models does the server list? curl {curl}",
        )

    @classmethod
    def parse_root(cls, url: str, protocol: str) -> Self:
        """Parse the URL of a token-level server. Its endpoints are next to `/v1`, so a trailing `/v1` is dropped."""
        parts, base = _base(url)
        root = base.removesuffix("/v1")
        curl = f"{root}/health"
        return cls(
            shown=root,
            query=f"?{parts.query}" if parts.query else "",
            authorization=_basic_authorization(parts),
            curl=curl,
            misplaced=f"is it a server that speaks {protocol}? --model-protocol names another; curl {curl}",
        )

    @property
    def chat(self) -> str:
        """The URL for chat completions."""
        return self.at("/chat/completions")

    @property
    def models(self) -> str:
        """The URL of the server's list of models."""
        return self.at("/models")

    def at(self, path: str) -> str:
        """Return the URL of a path below the base."""
        return f"{self.shown}{path}{self.query}"


def _base(url: str) -> tuple[SplitResult, str]:
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    for endpoint in _ENDPOINTS:
        if base.endswith(endpoint):
            raise ConfigError(
                f"expected the base URL of the model server, got {base}", hint=f"--model {base.removesuffix(endpoint)}"
            )
    return parts, base


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:  # a bad port or a broken IPv6 address; its text may repeat a password
        raise ConfigError(
            "expected a model URL like http://HOST:PORT/v1, got one that is not a valid URL", hint=_EXAMPLE
        ) from error
    if not usable:
        shown = url.strip().rpartition("@")[2]
        raise ConfigError(f"expected a model URL like http://HOST:PORT/v1, got {shown!r}", hint=_EXAMPLE)
    return parts


def _basic_authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
