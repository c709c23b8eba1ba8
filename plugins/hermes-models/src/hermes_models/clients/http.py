"""The HTTP layer of all model clients: one session, deadlines, bounded retries, refusals and credentials."""

from __future__ import annotations

import asyncio
import io
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote

from hermes_core.contracts.errors import ConfigError, ModelRateLimitError, ModelReplyError
from hermes_models.clients.address import ServerAddress
from hermes_models.clients.http_errors import FEWER_AT_A_TIME, RequestRefusal, of_reply, of_status, of_transport
from hermes_models.clients.rate_limits import PauseTooLongError, Throttle

if TYPE_CHECKING:
    import aiohttp

ROLLOUT_HEADER: Final = "X-Hermes-Rollout-Id"
EVENT_STREAM: Final = "text/event-stream"
SEED_HEADER: Final = "X-Hermes-Rollout-Seed"
"""For embedded models behind a server. The body's field `seed` is a sampling field, so only the config sets it."""

_BACKOFF: Final = 0.5
_BACKOFF_MAX: Final = 30.0
_LONGEST_WAIT: Final = 120.0
# uvicorn closes idle connections after 5 s.
_KEEPALIVE: Final = 4.0
# A request that took longer may have been sampled; the caller decides whether to repeat it.
_AT_ONCE: Final = 5.0
_LARGE_BODY: Final = 2**20
# 131,072 tokens with their log-probabilities are about 16 MB; a compressed answer can unpack to any size.
_LONGEST_ANSWER: Final = 64 * 2**20
# An event contains no line break.
_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
_LONGEST_MARK: Final = len(b"\ndata: [DONE]")
# The rollout's own timer must fire first: it records that the time limit ended the call, not the model.
_GRACE: Final = 0.25

T = TypeVar("T")


class HttpAnswer(NamedTuple):
    """An HTTP answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpOptions(TypedDict, total=False):
    """HTTP options of a client; the defaults are those of `HttpChannel`."""

    api_key: str | None
    timeout: float
    connect_timeout: float
    max_retries: int
    rate_limit_patience: float
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    rng: random.Random | None


class HttpChannel:
    """One client's connections to one server.

    `timeout` bounds each request from connecting to the last byte. Temporary failures are retried at most
    `max_retries` times: no connection, 5xx (after the wait that the server asks for, up to two minutes), an answer
    that broke off. A timeout is not retried, because the server may still be working on the request. A rate limit
    (429) is waited out as the server asks, for `rate_limit_patience` seconds per call in total, and fewer requests
    are sent meanwhile. With `max_retries=0` nothing is retried. The number of connections is not limited here; the
    runner does that.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        max_retries: int = 4,
        rate_limit_patience: float = 900.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._api_key = _usable_key(api_key)
        self._authorization = _authorization(address, self._api_key)
        self._connect_timeout = connect_timeout
        self._max_retries = max_retries
        self._patience = rate_limit_patience if max_retries else 0.0
        self._clock = clock
        self._sleep = sleep
        self._random = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._throttle = Throttle(address.shown, sleep=sleep, rng=self._random)
        self._session: aiohttp.ClientSession | None = None

    async def repeat(
        self, attempt: Callable[[int, float], Awaitable[T | RequestRefusal]], *, timeout: float | None
    ) -> T:
        """Call `attempt(number, seconds)` until it succeeds, or raise the last refusal as a `ModelError`.

        `timeout` is the time left to the rollout: no attempt starts after it, and no pause goes beyond it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number, limited, waited, began = 0, 0, 0.0, time.monotonic()
        while True:
            number += 1
            outcome = await self._in_turn(attempt, number, limited, deadline)
            if not isinstance(outcome, RequestRefusal):
                return outcome
            if outcome.is_limit:
                # Time in the queue counts from the first refusal.
                began = began if limited else time.monotonic()
                limited += 1
                delay: float | None = self._throttle.seconds_left()
                waited = max(waited + (delay or 0.0), time.monotonic() - began)
            else:
                delay = self._delay(outcome, number - limited)
            is_late = delay is not None and deadline is not None and time.monotonic() + delay >= deadline
            if delay is None or is_late or (outcome.is_limit and waited >= self._patience):
                raise outcome.error(number)
            if not outcome.is_limit:
                await self._sleep(delay)

    async def _in_turn(
        self,
        attempt: Callable[[int, float], Awaitable[T | RequestRefusal]],
        number: int,
        limited: int,
        deadline: float | None,
    ) -> T | RequestRefusal:
        """Make one attempt when the rate limit allows it; `limited` earlier attempts were refused for it."""
        began = await self._enter(deadline)
        wait, is_answered = None, False
        try:
            outcome = await attempt(number, self._seconds(deadline))
            is_answered = not isinstance(outcome, RequestRefusal)
            if isinstance(outcome, RequestRefusal) and outcome.is_limit:
                # Trust the server's wait the first time; after a second refusal it has been wrong.
                wait = self._pause(limited + 1) if outcome.after is None or limited else outcome.after
                wait = max(wait, outcome.after or 0.0)
            return outcome
        finally:
            self._throttle.leave(began, wait=wait, is_answered=is_answered)

    async def _enter(self, deadline: float | None) -> float:
        """Wait for a turn, at most for the run's patience and the rollout's remaining time.

        The rollout's own timer cannot tell the rate limit from a slow model, so this deadline fires first.
        """
        left = math.inf if deadline is None else deadline - time.monotonic() - _GRACE
        pause = self._throttle.seconds_left()
        try:
            # A caller with no patience still gets through when no wait is needed.
            async with asyncio.timeout(
                max(min(left, self._patience), 0.0) if pause or self._throttle.is_full else None
            ):
                return await self._throttle.enter(max(min(left, self._patience), 0.0))
        except (TimeoutError, PauseTooLongError) as error:
            end = (
                "the time of the rollout" if left < self._patience else "the patience of the run (rate_limit_patience)"
            )
            message = f"{self.address.shown} limits the rate, and {end} ended before this request's turn"
            raise ModelRateLimitError(message, retry_after=pause or None, hint=FEWER_AT_A_TIME) from error

    async def exchange(
        self, method: str, url: str, seconds: float, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HttpAnswer | RequestRefusal:
        """Send one request and read its whole answer; return a refusal if there is no answer.

        A server may close a kept-alive connection just as a request is sent. So a request that fails on such a
        connection without a byte of an answer is sent once more, on a new connection.
        """
        session = self._session or self._open_session()
        begin = time.monotonic()
        outcome = await self._send(session, method, url, seconds, body=body, headers=headers)
        if outcome is None:
            left = max(_GRACE, seconds - (time.monotonic() - begin))
            async with self._make_session() as new:
                outcome = await self._send(new, method, url, left, body=body, headers=headers)
        assert outcome is not None  # a new connection is not a kept-alive one
        return outcome

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        seconds: float,
        *,
        body: bytes | None,
        headers: dict[str, str] | None,
    ) -> HttpAnswer | RequestRefusal | None:
        """Send one request; return None if a kept-alive connection closed before an answer began."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=self._connect_timeout)
        # aiohttp warns about large bodies in one piece; a stream is sent in pieces.
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
        way, begin = _Way(), time.monotonic()
        options: dict[str, Any] = {"headers": headers, "timeout": timeout, "allow_redirects": False}
        try:
            async with session.request(method, url, data=data, trace_request_ctx=way, **options) as response:
                way.is_kept = False
                return await self._answer(response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            if way.is_kept and time.monotonic() - begin < _AT_ONCE and _is_closed(error):
                return None
            return of_transport(error, address=self.address, seconds=seconds)

    async def _answer(self, response: aiohttp.ClientResponse) -> HttpAnswer | RequestRefusal:
        body = await _read(response)
        answer = HttpAnswer(response.status, response.headers, body[:_LONGEST_ANSWER])
        if len(body) > _LONGEST_ANSWER:
            return self.unreadable(ModelReplyError(f"its body has more than {_LONGEST_ANSWER} bytes"), answer)
        return answer

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefusal:
        """Classify an answer that is not a success."""
        return of_status(status, headers, body, address=self.address, now=self._clock(), secret=self._api_key)

    def unreadable(self, error: Exception, answer: HttpAnswer) -> RequestRefusal:
        """Classify a success with a body that cannot be used."""
        return of_reply(error, answer.body, status=answer.status, address=self.address, secret=self._api_key)

    async def aclose(self) -> None:
        """Close connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _seconds(self, deadline: float | None) -> float:
        if deadline is None:
            return self.timeout
        return min(self.timeout, max(0.0, deadline - time.monotonic()) + _GRACE)

    def _open_session(self) -> aiohttp.ClientSession:
        self._session = self._make_session()
        return self._session

    def _make_session(self) -> aiohttp.ClientSession:
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        return aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[_tracing()],
        )

    def _delay(self, refusal: RequestRefusal, attempt: int) -> float | None:
        """Return the seconds until the next attempt, or None for no further attempt."""
        if not refusal.repeatable or attempt > self._max_retries:
            return None
        if refusal.after is not None:  # a random bit later than asked, so that clients do not all retry at once
            return min(refusal.after, _LONGEST_WAIT) * (1 + 0.1 * self._random.random())
        return self._pause(attempt)

    def _pause(self, attempt: int) -> float:
        return min(_BACKOFF_MAX, _BACKOFF * 2.0 ** min(attempt - 1, 16)) * (0.5 + 0.5 * self._random.random())


@dataclass(slots=True)
class _Way:
    """The state of a request: whether its connection was kept from an earlier one, and whether an answer has begun."""

    is_kept: bool = False


def _is_closed(error: Exception) -> bool:
    """Return whether the server closed the connection without a byte of an answer."""
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # otherwise it is the part of the answer received so far
    return isinstance(error, aiohttp.ClientOSError)


def _tracing() -> aiohttp.TraceConfig:
    import aiohttp

    async def note(_session: object, context: Any, _parameters: object) -> None:
        context.trace_request_ctx.is_kept = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(note)
    return tracing


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return a body; of one that exceeds the size limit, return the beginning.

    A stream of events ends at its last event, because not every server closes the connection then.
    """
    parts: list[bytes] = []
    size, last, is_stream = 0, b"\n", response.content_type == EVENT_STREAM
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        last = last[-_LONGEST_MARK:] + part if is_stream else b""
        if size > _LONGEST_ANSWER or _DONE.search(last):
            break
    return b"".join(parts)


def rollout_headers(rollout_id: str, seed: int) -> dict[str, str]:
    """Return the headers that name the rollout of a request."""
    headers = {SEED_HEADER: str(seed)} if seed else {}
    if rollout_id:
        headers[ROLLOUT_HEADER] = header_value(rollout_id)
    return headers


def header_value(text: str) -> str:
    """Return text that is safe in a header: visible ASCII unchanged, everything else percent-encoded."""
    if text.isascii() and text.isprintable() and "%" not in text:
        return text
    return quote(text, errors="replace")


def _usable_key(api_key: str | None) -> str | None:
    if api_key is None:
        return None
    key = api_key.strip()
    if not key or not key.isascii() or not key.isprintable():
        found = "an empty one" if not key else "one with characters that no HTTP header can carry"
        raise ConfigError(
            f"expected an API key, got {found}", hint="--api-key-env VAR names the variable that holds it"
        )
    return key


def _authorization(address: ServerAddress, api_key: str | None) -> str | None:
    if api_key is None:
        return address.authorization
    if address.authorization is not None:
        raise ConfigError(
            f"expected one way to log in to {address.shown}, got a user in the URL and an API key",
            hint="remove one of the two",
        )
    return f"Bearer {api_key}"
