"""A client for OpenAI-compatible chat servers, on bare HTTP.

The usual SDK walks every message of the history on every request, which makes long rollouts quadratic; here a request
is joined from bytes that were serialised once.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from hermes_core.contracts.errors import ConfigError, ModelReplyError, ModelRequestError
from hermes_core.contracts.model import ModelReply, ModelRequest, encode
from hermes_core.models.address import ServerAddress
from hermes_core.models.refusals import Refusal, embedded_status, of_reply, of_status, of_transport
from hermes_core.models.replies import decode_json, read_reply

if TYPE_CHECKING:
    import aiohttp

ROLLOUT_HEADER: Final = "X-Hermes-Rollout-Id"
SEED_HEADER: Final = "X-Hermes-Rollout-Seed"
"""For embedded models behind a server. The body's field `seed` is sampling, and therefore the config's business."""

_OURS: Final = frozenset({"model", "messages", "tools", "stream", "n", "extra_body"})
_CHECK_TIMEOUT: Final = 30.0
_BACKOFF: Final = 0.5
_BACKOFF_MAX: Final = 30.0
# uvicorn closes idle connections after 5 s; using one at that very moment would lose a request that may have run.
_KEEPALIVE: Final = 4.0
_LARGE_BODY: Final = 2**20
# The rollout's own timer is to go first: it knows that the time limit ended the call and not the model.
_GRACE: Final = 0.25

_Answer = tuple[int, Mapping[str, str], bytes]


class OpenAIChatClient:
    """Talks to one model of one server; implements `ModelClient`.

    `timeout` bounds each request from connecting to the last byte. Repeated, at most `max_retries` times, is only what
    was surely not run: no connection, 429 (its Retry-After is honoured up to `max_retry_after`), 5xx. A request that
    was accepted and then got lost is repeated only with `repeat_unanswered`. `extra_body` is merged into every request;
    a rollout's sampling fields win over it. The number of connections is not limited here: the runner's business.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model_name: str,
        api_key: str | None = None,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        max_retries: int = 4,
        max_retry_after: float = 120.0,
        repeat_unanswered: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._address = ServerAddress.parse(base_url)
        self._model_name = model_name
        self._api_key = _usable_key(api_key)
        self._authorization = _authorization(self._address, self._api_key)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_retries = max_retries
        self._max_retry_after = max_retry_after
        self._repeat_unanswered = repeat_unanswered
        self._extra_body = dict(extra_body or {})
        _refuse_our_fields(self._extra_body, "extra_body")
        self._head = encode({"model": model_name, **self._extra_body})[:-1]
        self._clock = clock
        self._sleep = sleep
        self._random = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"OpenAIChatClient(base_url={self._address.shown!r}, model_name={self._model_name!r})"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Protocol, address without credentials, model name."""
        return {"protocol": "openai-chat", "base_url": self._address.shown, "model_name": self._model_name}

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one assistant turn; raises a `ModelError` after bounded retries, in the request's own time."""
        body = self._body(request)
        headers = {SEED_HEADER: str(request.seed)} if request.seed else {}
        if request.rollout_id:
            headers[ROLLOUT_HEADER] = _header_value(request.rollout_id)
        deadline = None if request.timeout is None else time.monotonic() + request.timeout
        attempt = 0
        while True:
            attempt += 1
            outcome = await self._attempt(body, headers, deadline, len(request.conversation))
            if isinstance(outcome, ModelReply):
                return outcome
            delay = self._delay(outcome, attempt)
            if delay is None or (deadline is not None and time.monotonic() + delay >= deadline):
                raise outcome.error(attempt)
            await self._sleep(delay)

    async def check(self) -> None:
        """Ask for the list of models: costs no sampling, and finds a wrong address, key or model name."""
        outcome = await self._exchange("GET", self._address.models, min(self._timeout, _CHECK_TIMEOUT))
        if isinstance(outcome, Refusal):
            raise outcome.error()
        status, headers, body = outcome
        if status in {404, 405, 429, 501}:  # the server is there; it does not list models, or not now
            return
        if status != 200:
            raise self._refused(status, headers, body).error()
        try:
            listed = _listed_models(decode_json(body))
        except ValueError as error:
            reason = ModelReplyError("its list of models is not JSON")
            refusal = of_reply(reason, body, status=status, address=self._address, secret=self._api_key)
            raise refusal.error() from error
        if listed and _plain_name(self._model_name) not in {_plain_name(name) for name in listed}:
            shown = ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
            raise ModelRequestError(
                f"{self._address.shown} has no model {self._model_name!r}; it lists {shown}",
                hint=f"--model-name {listed[0]}",
            )

    async def aclose(self) -> None:
        """Close connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _body(self, request: ModelRequest) -> bytes:
        """Join the request: our fields first, then sampling, messages and tools as they were serialised once."""
        parts = [self._head]
        if request.sampling:
            _refuse_our_fields(request.sampling, "sampling")
            overridden = self._extra_body.keys() & request.sampling.keys()
            if overridden:  # a JSON object must not have a key twice
                rest = {k: v for k, v in self._extra_body.items() if k not in overridden}
                parts = [encode({"model": self._model_name, **rest})[:-1]]
            parts += [b",", encode(request.sampling)[1:-1]]
        parts += [b',"messages":', request.conversation.encoded()]
        if request.tools.encoded:
            parts += [b',"tools":', request.tools.encoded]
        parts.append(b"}")
        return b"".join(parts)

    async def _attempt(
        self, body: bytes, headers: dict[str, str], deadline: float | None, number: int
    ) -> ModelReply | Refusal:
        left = self._timeout if deadline is None else max(0.0, deadline - time.monotonic()) + _GRACE
        seconds = min(self._timeout, left)
        outcome = await self._exchange("POST", self._address.chat, seconds, body, headers)
        if isinstance(outcome, Refusal):
            return outcome
        status, answer_headers, answer = outcome
        if status != 200:
            return self._refused(status, answer_headers, answer)
        try:
            data = decode_json(answer)
            inner = embedded_status(data)
            if inner is not None:
                return self._refused(inner, answer_headers, answer)
            return read_reply(data, sent=body, number=number, body=answer)
        except (ValueError, ModelReplyError) as error:
            return of_reply(error, answer, status=status, address=self._address, secret=self._api_key)

    async def _exchange(
        self, method: str, url: str, seconds: float, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> _Answer | Refusal:
        import aiohttp

        session = self._session or self._open_session()
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=self._connect_timeout)
        # aiohttp warns about large bodies in one piece; from a stream they are sent in pieces.
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
        try:
            async with session.request(
                method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            return of_transport(error, address=self._address, seconds=seconds)

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
        return of_status(status, headers, body, address=self._address, now=self._clock(), secret=self._api_key)

    def _delay(self, refusal: Refusal, attempt: int) -> float | None:
        """Return the seconds until the next attempt, None if there is to be none."""
        may_repeat = refusal.repeatable or (refusal.unanswered and self._repeat_unanswered)
        if not may_repeat or attempt > self._max_retries:
            return None
        if refusal.after is not None:  # a little later than asked, and not everybody at once
            return min(refusal.after, self._max_retry_after) * (1 + 0.1 * self._random.random())
        return min(_BACKOFF_MAX, _BACKOFF * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * self._random.random())


def _usable_key(api_key: str | None) -> str | None:
    if api_key is None:
        return None
    key = api_key.strip()
    if not key or not key.isascii() or not key.isprintable():
        found = "an empty one" if not key else "one with characters that no HTTP header can carry"
        raise ConfigError(f"an API key was wanted, found {found}", hint="--api-key-env VAR names where the key is")
    return key


def _authorization(address: ServerAddress, api_key: str | None) -> str | None:
    if api_key is None:
        return address.authorization
    if address.authorization is not None:
        raise ConfigError(
            f"one way to log in to {address.shown} was wanted, found a user in the URL and an API key",
            hint="leave one of the two out",
        )
    return f"Bearer {api_key}"


def _refuse_our_fields(fields: Mapping[str, Any], where: str) -> None:
    if _OURS.isdisjoint(fields):
        return
    found = ", ".join(sorted(_OURS & fields.keys()))
    raise ConfigError(
        f"{where} holds further top-level fields of a request, found {found}, which the client sets itself",
        hint=f"remove {found} from {where}",
    )


def _header_value(text: str) -> str:
    """Return text that is safe in a header: visible ASCII as it is, anything else percent-encoded."""
    if text.isascii() and text.isprintable() and "%" not in text:
        return text
    return quote(text, errors="replace")


def _listed_models(data: Any) -> list[str]:
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _plain_name(name: str) -> str:
    """Return a name without what servers add on one side only: Gemini's folder, Ollama's and OpenRouter's tags."""
    return name.removeprefix("models/").partition(":")[0]
