"""Classify requests without a usable reply: who is to blame, and whether to retry."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import (
    ContextOverflowError,
    ModelAuthError,
    ModelError,
    ModelRateLimitError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from hermes_models.clients.rate_limits import requested_wait

if TYPE_CHECKING:
    from hermes_models.clients.address import ServerAddress

FEWER_AT_A_TIME: Final = "--max-concurrent N with fewer rollouts in flight, or --rate-limit-patience SECONDS"
_EXCERPT: Final = 300

# The wordings of OpenAI, vLLM, SGLang, llama.cpp, Anthropic and Gemini.
_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|window|size)|maximum model length"
    r"|prompt is too long|input is too long|input length .{0,40}exceeds|exceeds the maximum number of tokens"
    r"|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)
_NO_CREDIT: Final = re.compile(r"insufficient_quota|insufficient (?:balance|credits)", re.IGNORECASE)

# The answer of a vLLM without a tool-call parser to any request with tools.
_NO_PARSER: Final = "tool choice requires --enable-auto-tool-choice"
# In the message, because a rollout's record does not keep hints.
_READ_HERE: Final = "; or parse the calls on the client side: --parser NAME"
_AUTH_HINT: Final = "--api-key-env VAR, with the key in the environment variable VAR"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefusal:
    """A request without a reply.

    `repeatable` is false when a retry would fail again, or when the server may still be working on the request: a
    model's answer costs time and money. An answer that broke off is retried, because otherwise the whole rollout
    would be lost. `after` is the wait in seconds that the server asks for.
    """

    kind: type[ModelError]
    message: str
    hint: str | None = None
    repeatable: bool = False
    unanswered: bool = False
    """The server received the request and then broke off or did not answer: the request may have run."""
    after: float | None = None
    cause: BaseException | None = None

    @property
    def is_limit(self) -> bool:
        """Whether the server refused the request for its rate limit."""
        return issubclass(self.kind, ModelRateLimitError)

    def error(self, attempts: int = 1) -> ModelError:
        """Return the exception to raise."""
        message = self.message if attempts == 1 else f"{self.message}; gave up after {attempts} attempts"
        if issubclass(self.kind, ModelRateLimitError):
            error: ModelError = self.kind(message, retry_after=self.after, hint=self.hint)
        else:
            error = self.kind(message, hint=self.hint)
        error.__cause__ = self.cause
        return error


def of_status(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    address: ServerAddress,
    now: float,
    secret: str | None = None,
) -> RequestRefusal:
    """Classify an HTTP answer that is not a success; `now` is the wall clock, for a Retry-After that is a date."""
    said = excerpt(body, secret)
    text = body[:20_000].decode("utf-8", "replace")
    kind = _kind(status, text)
    repeatable = kind in {ModelRateLimitError, ModelServerError}
    return RequestRefusal(
        kind=kind,
        message=f"{address.shown} answered {status}"
        + (f": {said}" if said else "")
        + (_READ_HERE if _NO_PARSER in text else ""),
        hint=_hint(kind, status, headers, address),
        repeatable=repeatable,
        after=_asked_wait(kind, headers, text, now) if repeatable else None,
    )


def _asked_wait(kind: type[ModelError], headers: Mapping[str, str], text: str, now: float) -> float | None:
    """Return the wait that a server asks for; limits mentioned beside another kind of error do not count."""
    if kind is ModelRateLimitError:
        return requested_wait(headers, text, now)
    return requested_wait({n: v for n, v in headers.items() if n.lower().startswith("retry-after")}, "", now)


def _kind(status: int, text: str) -> type[ModelError]:
    if status in {401, 402, 403} or (status == 429 and _NO_CREDIT.search(text)):
        return ModelAuthError
    if status == 429:
        return ModelRateLimitError
    if (status in {400, 413, 422} or status >= 500) and _OVERFLOW.search(text):
        return ContextOverflowError
    return ModelServerError if status >= 500 or status in {408, 425} else ModelRequestError


def _hint(kind: type[ModelError], status: int, headers: Mapping[str, str], address: ServerAddress) -> str | None:
    if kind is ModelAuthError:
        return _AUTH_HINT if status in {401, 403} else "the account has no credit left for this model"
    if kind is ModelRateLimitError:
        return FEWER_AT_A_TIME
    if 300 <= status < 400:  # never followed: the key would go to another host, and a POST would become a GET
        return f"give the final address itself; it redirects to {headers.get('Location', 'an unnamed place')}"
    return address.misplaced if status in {404, 405} else None


def of_reply(
    error: Exception, body: bytes, *, status: int, address: ServerAddress, secret: str | None = None
) -> RequestRefusal:
    """Classify a successful HTTP answer that cannot be used; the error's own hint wins."""
    reason = error.message if isinstance(error, ModelReplyError) else "the answer is not JSON"
    hint = error.hint if isinstance(error, ModelReplyError) else None
    return RequestRefusal(
        kind=ModelReplyError,
        message=f"{address.shown} answered {status}, but {reason}: {excerpt(body, secret) or 'an empty body'}",
        hint=hint or (None if body.lstrip().startswith((b"{", b"data:")) else address.misplaced),
        cause=error,
    )


def embedded_status(data: Any) -> int | None:
    """Return the status in an error object that came with HTTP 200 (llama.cpp, OpenRouter), or None."""
    if isinstance(data, dict) and data.get("object") == "error":  # vLLM's older form
        data = {"error": data}
    error = data.get("error") if isinstance(data, dict) else None
    if not error or "choices" in data:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 400


def of_transport(error: Exception, *, address: ServerAddress, seconds: float) -> RequestRefusal:
    """Classify an exception of the HTTP client."""
    import aiohttp

    shown = address.shown
    # The messages of these two contain the whole URL, including any secret in its query string.
    telling = isinstance(error, aiohttp.ClientResponseError | aiohttp.ConnectionTimeoutError)
    cause = None if telling else error
    if isinstance(error, aiohttp.ClientSSLError):
        message = f"no secure connection to {shown}: {error.os_error if hasattr(error, 'os_error') else error}"
        hint = "use http:// for a server without TLS; add a private certificate authority to the system's trust store"
        return RequestRefusal(kind=ModelRequestError, message=message, hint=hint, cause=error)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestRefusal(
            kind=ModelUnreachableError,
            message=f"no server answers at {shown}: {_connect_reason(error)}",
            hint=_unreachable_hint(error, address),
            repeatable=True,
            cause=cause,
        )
    if isinstance(error, TimeoutError):
        message = f"{shown} did not answer within {seconds:g} s"
        hint = "--model-timeout SECONDS waits longer; --max-concurrent N shortens the server's queue"
        return RequestRefusal(kind=ModelTimeoutError, message=message, hint=hint, unanswered=True, cause=error)
    reason = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    message = f"{shown} broke off: {type(error).__name__}: {' '.join(reason.split())[:_EXCERPT]}"
    return RequestRefusal(kind=ModelServerError, message=message, repeatable=True, unanswered=True, cause=cause)


def _connect_reason(error: Exception) -> str:
    """Return the system's error text; asyncio replaces it with the address that was tried."""
    if isinstance(error, TimeoutError):
        return "the connection was not accepted in time"
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error)  # a host name that cannot be resolved


def _unreachable_hint(error: Exception, address: ServerAddress) -> str:
    if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
        return "this process has too many open files: ulimit -n 65536, or --max-concurrent N"
    return f"check that the server runs and that host and port are right: curl {address.curl}"


def excerpt(body: bytes, secret: str | None = None) -> str:
    """Return the message of an error body, or the start of any other body, on one line and without the key."""
    text = body[:20_000].decode("utf-8", "replace")
    try:
        said = _message(json.loads(text))
    except (ValueError, RecursionError):
        said = None
    line = " ".join((said or text).split())
    if secret:
        line = line.replace(secret, "***")
    return line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…"


def _message(data: object) -> str | None:
    """Find the error text in the various shapes that servers use."""
    if isinstance(data, str):
        return data
    if not isinstance(data, dict):
        return None
    return next((found for key in ("error", "message", "detail") if (found := _message(data.get(key)))), None)
