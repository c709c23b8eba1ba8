"""Where a server is: the address that is called, and the one that may be shown."""

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

    `shown` has neither user, password nor query string, for each of them can be a secret. `authorization` is the header
    made from a user and password in the URL. `curl` is the shown address of something that answers a GET, and
    `misplaced` says what to look at when an endpoint is not there; both are for hints.
    """

    shown: str
    query: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)
    curl: str
    misplaced: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read the base URL of an OpenAI-compatible server; raises `ConfigError` that says what is wrong with it.

        A URL without any path means the `/v1` below it, which is where every such server answers.
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
        """Read the URL of a token-level server, whose endpoints lie beside `/v1`; a `/v1` at its end is dropped."""
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
        """Where chat completions are asked for."""
        return self.at("/chat/completions")

    @property
    def models(self) -> str:
        """Where the server lists its models."""
        return self.at("/models")

    def at(self, path: str) -> str:
        """Return the address to call for a path below the base."""
        return f"{self.shown}{path}{self.query}"


def _base(url: str) -> tuple[SplitResult, str]:
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    for endpoint in _ENDPOINTS:
        if base.endswith(endpoint):
            raise ConfigError(
                f"the model URL is the server's base, found {base}", hint=f"--model {base.removesuffix(endpoint)}"
            )
    return parts, base


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
