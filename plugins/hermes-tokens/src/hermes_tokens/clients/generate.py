"""The base of the token-level clients: request ids, retries, aborts of abandoned requests, checks."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Unpack
from urllib.parse import quote

from hermes_core.contracts.errors import ConfigError, ModelReplyError
from hermes_core.contracts.model import encode
from hermes_models import (
    CHECK_TIMEOUT,
    HttpAnswer,
    HttpChannel,
    HttpOptions,
    RequestRefusal,
    ServerAddress,
    decode_json,
    embedded_status,
    rollout_headers,
)
from hermes_tokens.clients.sampling import SamplingNames
from hermes_tokens.constraints import constraints
from hermes_tokens.generation import Generated, GenerateRequest

DEFAULT_MAX_TOKENS: Final = 4096
REQUEST_HEADER: Final = "X-Request-Id"
LOGPROB_KINDS: Final = ("raw", "processed")

_SAFE_IN_IDS: Final = "!#$&'()*+,/:;=?@[]|~"
_ABORT_TIMEOUT: Final = 2.0
_NOT_THERE: Final = frozenset({404, 405, 501})


class GenerateOptions(HttpOptions, total=False):
    """The options of every token-level client."""

    max_tokens: int
    extra_body: Mapping[str, Any] | None
    logprobs_mode: str | None
    echo_prompt: bool
    abort_timeout: float
    allow_unlisted_model: bool


class HttpGenerateClient(ABC):
    """Base class of the token-level clients; implements `GenerateClient`.

    A subclass writes requests and reads answers. `max_tokens` bounds a turn if its sampling has no bound. `extra_body`
    holds sampling parameters for every request; a request's own win over it. `logprobs_mode` is the kind of logprob
    that the server sends, `raw` or `processed` by temperature, top-p and penalties; no protocol reports it, so it is
    only recorded. `echo_prompt` makes the server return the prompt, if it can. `allow_unlisted_model` accepts a model
    name that the server does not list. The other options are those of `HttpChannel`.
    """

    protocol: ClassVar[str]
    path: ClassVar[str]
    names: ClassVar[SamplingNames]

    def __init__(
        self,
        *,
        base_url: str,
        model_name: str = "",
        max_tokens: int = DEFAULT_MAX_TOKENS,
        extra_body: Mapping[str, Any] | None = None,
        logprobs_mode: str | None = None,
        echo_prompt: bool = False,
        abort_timeout: float = _ABORT_TIMEOUT,
        allow_unlisted_model: bool = False,
        **http: Unpack[HttpOptions],
    ) -> None:
        self.address = ServerAddress.parse_root(base_url, self.protocol)
        self.model_name = model_name
        self.echo_prompt = echo_prompt
        self.allow_unlisted_model = allow_unlisted_model
        self._http = HttpChannel(self.address, **http)
        self._max_tokens = max_tokens
        self._extra_body = dict(extra_body or {})
        self._logprobs_mode = _logprob_kind(logprobs_mode)
        self._abort_timeout = abort_timeout
        self._aborts: set[asyncio.Task[object]] = set()
        self._closed = False
        self.names.translate(self._extra_body, max_tokens=max_tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self.address.shown!r}, model_name={self.model_name!r})"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Protocol, address without credentials, model name, kind of logprob."""
        return {
            "protocol": self.protocol,
            "base_url": self.address.shown,
            "model_name": self.model_name,
            "logprobs_mode": self._logprobs_mode,
        }

    async def generate(self, request: GenerateRequest) -> Generated:
        """Sample one turn; raise a `ModelError` after bounded retries within the request's timeout.

        When cancelled, it first aborts the request on the server, within `abort_timeout`.
        """
        if not len(request.prompt):
            raise ConfigError("expected a prompt of at least one token, got an empty one")
        sampling = {**self._extra_body, **request.sampling}
        parameters, fields = self.names.translate(sampling, max_tokens=self._max_tokens)
        # The id is also sent in a header and must be the same there.
        base_id = quote(request.request_id, safe=_SAFE_IN_IDS, errors="replace") or uuid.uuid4().hex

        async def attempt(number: int, seconds: float) -> Generated | RequestRefusal:
            request_id = base_id if number == 1 else f"{base_id}.{number}"
            body = self._body(request, request_id, parameters, fields)
            return await self._attempt(request, request_id, body, seconds)

        generated = await self._http.repeat(attempt, timeout=request.timeout)
        found = constraints(sampling, logprobs_mode=self._logprobs_mode)
        return replace(generated, constraints=found) if found else generated

    async def check(self) -> None:
        """Check that the server is healthy and has the endpoint, without sampling a token."""
        await self._check_health()
        await self._check_endpoint()

    async def aclose(self) -> None:
        """Close connections after pending aborts."""
        self._closed = True
        if self._aborts:
            await asyncio.wait(self._aborts)
        await self._http.aclose()

    @abstractmethod
    def _body(
        self, request: GenerateRequest, request_id: str, parameters: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> bytes:
        """Write a request around the serialised prompt."""

    @abstractmethod
    def _read(self, data: Any) -> Generated:
        """Read a decoded answer; raise a `ModelReplyError` for anything that is not certainly right."""

    def _abort_request(self, request_id: str) -> tuple[str, bytes] | None:  # noqa: ARG002 - for subclasses
        """Return path and body of an abort call, or None if closing the connection is the only way."""
        return None

    def _explain(self, refusal: RequestRefusal, status: int) -> RequestRefusal:  # noqa: ARG002 - for subclasses
        """Add this protocol's hints to a refusal."""
        return refusal

    async def _attempt(
        self, request: GenerateRequest, request_id: str, body: bytes, seconds: float
    ) -> Generated | RequestRefusal:
        headers = rollout_headers(request.rollout_id, request.seed)
        headers[REQUEST_HEADER] = request_id
        try:
            outcome = await self._http.exchange("POST", self.address.at(self.path), seconds, body, headers)
        except asyncio.CancelledError:
            # Shielded: a second cancellation ends the wait, not the abort, which has its own time limit.
            await asyncio.shield(self._abort(request_id))
            raise
        if isinstance(outcome, RequestRefusal):
            if outcome.unanswered:
                self._abort(request_id)
            return outcome
        return self._interpret(outcome)

    def _interpret(self, answer: HttpAnswer) -> Generated | RequestRefusal:
        if answer.status != 200:
            return self._explain(self._http.refusal(*answer), answer.status)
        try:
            data = decode_json(answer.body)
            inner = embedded_status(data)
            if inner is not None:
                return self._explain(self._http.refusal(inner, answer.headers, answer.body), inner)
            return self._read(data)
        except ModelReplyError as error:
            # Quoting the whole answer adds nothing, and would make one failure of a thousand rollouts look like a
            # thousand.
            message = f"{self.address.shown} answered {answer.status}, but {error.message}"
            return RequestRefusal(kind=ModelReplyError, message=message, hint=error.hint, cause=error)
        except ValueError as error:
            return self._http.unreadable(error, answer)

    def _abort(self, request_id: str) -> asyncio.Task[object]:
        # A cancellation after the client was closed must not open a connection, because nothing would close it.
        abort = None if self._closed else self._abort_request(request_id)
        task: asyncio.Task[object] = asyncio.create_task(self._send_abort(abort))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)
        return task

    async def _send_abort(self, abort: tuple[str, bytes] | None) -> None:
        """Ask the server to stop sampling; success is unknown and changes nothing."""
        if abort is not None:
            path, body = abort
            await self._http.exchange("POST", self.address.at(path), self._abort_timeout, body)

    async def _check_health(self) -> None:
        outcome = await self._probe("GET", "/health")
        if outcome.status not in {200, 429} | _NOT_THERE:
            raise self._http.refusal(*outcome).error()

    async def _check_endpoint(self) -> None:
        """Check that the path exists: a GET is answered with 405 if it does, with 404 if not.

        Not every server makes this difference, so after a 404 an empty POST decides.
        """
        if (await self._probe("GET", self.path)).status not in _NOT_THERE - {405}:
            return
        outcome = await self._probe("POST", self.path, b"{}")
        if outcome.status in {401, 403} | _NOT_THERE:
            refusal = self._explain(self._http.refusal(*outcome), outcome.status)
            raise replace(refusal, message=f"expected a server with {self.path}, got: {refusal.message}").error()

    async def _probe(self, method: str, path: str, body: bytes | None = None) -> HttpAnswer:
        seconds = min(self._http.timeout, CHECK_TIMEOUT)
        outcome = await self._http.exchange(method, self.address.at(path), seconds, body)
        if isinstance(outcome, RequestRefusal):
            raise outcome.error()
        return outcome


def request_body(head: Mapping[str, Any], key: bytes, request: GenerateRequest, tail: bytes = b"") -> bytes:
    """Return a JSON object of some fields and the already serialised prompt."""
    return b"".join((encode(head)[:-1], b"," if head else b"", key, request.prompt.json_array(), tail, b"}"))


def _logprob_kind(mode: str | None) -> str:
    """Return the kind of logprob; vLLM's own names for the two are accepted."""
    if mode is None or mode == "unknown":
        return "unknown"
    kind = mode.removesuffix("_logprobs")
    if kind not in LOGPROB_KINDS:
        raise ConfigError(
            f"expected a kind of logprob as logprobs_mode, got {mode!r}",
            hint=f"logprobs_mode: {' or '.join(LOGPROB_KINDS)}",
        )
    return kind
