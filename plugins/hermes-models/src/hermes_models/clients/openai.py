"""A client for OpenAI-compatible chat servers, over plain HTTP.

The usual SDK walks the whole history on every request, which makes long rollouts quadratic. Here each message is
serialised once, and a request joins those bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final, Unpack

from hermes_core.contracts.errors import ConfigError, ModelReplyError, ModelServerError
from hermes_core.contracts.model import ModelReply, ModelRequest, encode
from hermes_models.clients.address import ServerAddress
from hermes_models.clients.event_stream import StreamCutError, next_fields, plain_answer
from hermes_models.clients.http import HttpAnswer, HttpChannel, HttpOptions, rollout_headers
from hermes_models.clients.http_errors import RequestRefusal, embedded_status
from hermes_models.clients.model_list import check_listed, only_listed
from hermes_models.clients.raw_text import RawText, choose_fields
from hermes_models.clients.replies import decode_json, read_reply, why_no_answer

_OURS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options", "n", "extra_body"})
# The minimum timeout in seconds; 0 would mean no limit.
_LEAST: Final = 0.25


class OpenAIChatClient:
    """A client of one model on one server; implements `ModelClient`.

    `extra_body` is merged into every request; a rollout's sampling fields win over it. `raw_text_sampling` holds the
    sampling fields of a run that parses replies itself; when it is given, `check` finds out how the server returns
    raw text. `allow_unlisted_model` accepts a model name that the server does not list. The other options and the
    retry rules are those of `HttpChannel`.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model_name: str = "",
        extra_body: Mapping[str, Any] | None = None,
        raw_text_sampling: Mapping[str, Any] | None = None,
        allow_unlisted_model: bool = False,
        **http: Unpack[HttpOptions],
    ) -> None:
        self._address = ServerAddress.parse(base_url)
        self._http = HttpChannel(self._address, **http)
        self._extra_body = dict(extra_body or {})
        _refuse_our_fields(self._extra_body, "extra_body")
        self._raw_text_sampling = raw_text_sampling
        self._allow_unlisted = allow_unlisted_model
        self._raw_text: RawText | None = None
        self._stream_fields = b""
        self._take_name(model_name)

    def __repr__(self) -> str:
        return f"OpenAIChatClient(base_url={self._address.shown!r}, model_name={self._model_name!r})"

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Protocol, address without credentials, model name, and the fields that request raw text, if any."""
        found = {"protocol": "openai-chat", "base_url": self._address.shown, "model_name": self._model_name}
        return found if self._raw_text is None else found | {"raw_text": asdict(self._raw_text)}

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one assistant turn; raise a `ModelError` after bounded retries within the request's timeout."""
        body = self._body(request)
        headers = rollout_headers(request.rollout_id, request.seed)

        async def attempt(_number: int, seconds: float) -> ModelReply | RequestRefusal:
            return await self._attempt(body, headers, seconds, len(request.conversation))

        return await self._http.repeat(attempt, timeout=request.timeout)

    async def check(self) -> None:
        """Check the server's list of models; a client without a model name takes the only one.

        Samples nothing, except for a client that needs raw text: up to five requests of one token.
        """
        if self._model_name:
            allow = self._allow_unlisted
            await check_listed(self._http, self._address.models, self._model_name, allow_unlisted=allow)
        else:
            self._take_name(await only_listed(self._http, self._address.models))
        if self._raw_text_sampling is not None:
            self._raw_text = None
            given = {**self._extra_body, **self._raw_text_sampling}
            self._raw_text = await choose_fields(self.chat, given, self._address.shown)

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def _take_name(self, model_name: str) -> None:
        self._model_name = model_name
        self._head = encode({"model": model_name, **self._extra_body})[:-1]

    def _body(self, request: ModelRequest) -> bytes:
        """Join the request: the client's fields, then sampling, then the serialised messages and tools."""
        parts = [self._head]
        sampling = request.sampling
        if self._raw_text is not None and request.tools.encoded:
            sampling = {**self._raw_text.fields, **sampling}
        if sampling:
            _refuse_our_fields(sampling, "sampling")
            overridden = self._extra_body.keys() & sampling.keys()
            if overridden:  # a JSON object must not repeat a key
                rest = {k: v for k, v in self._extra_body.items() if k not in overridden}
                parts = [encode({"model": self._model_name, **rest})[:-1]]
            parts += [b",", encode(sampling)[1:-1]]
        parts += [b',"messages":', request.conversation.json_array()]
        if request.tools.encoded:
            parts += [b',"tools":', request.tools.encoded]
        parts.append(b"}")
        return b"".join(parts)

    async def _attempt(
        self, body: bytes, headers: dict[str, str], seconds: float, number: int
    ) -> ModelReply | RequestRefusal:
        """Send a request; repeat it as a stream if the server says that it can only stream."""
        begin, fields = time.monotonic(), self._stream_fields
        request = body[:-1] + fields + b"}" if fields else body
        reply = await self._exchange(request, headers, seconds, number)
        other = next_fields(fields, reply.message) if isinstance(reply, RequestRefusal) else None
        if other is None:
            return reply
        self._stream_fields = other
        return await self._attempt(body, headers, max(_LEAST, seconds - (time.monotonic() - begin)), number)

    async def _exchange(
        self, body: bytes, headers: dict[str, str], seconds: float, number: int
    ) -> ModelReply | RequestRefusal:
        outcome = await self._http.exchange("POST", self._address.chat, seconds, body, headers)
        if isinstance(outcome, RequestRefusal):
            return outcome
        try:
            outcome = await plain_answer(outcome)
            status, answer_headers, answer = outcome
            if status != 200:
                return self._http.refusal(status, answer_headers, answer)
            data = decode_json(answer)
            inner = embedded_status(data)
            if inner is not None:
                return self._http.refusal(inner, answer_headers, answer)
            reply = read_reply(data, sent=body, number=number, body=answer)
            reason = why_no_answer(reply, data)
            return reply if reason is None else self._no_answer(reason, outcome)
        except StreamCutError as error:  # the server's failure: an incomplete reply is never scored
            cut = self._http.unreadable(error, outcome)
            return replace(cut, kind=ModelServerError, repeatable=True, unanswered=True)
        except (ValueError, RecursionError, ModelReplyError) as error:
            return self._http.unreadable(error, outcome)

    def _no_answer(self, reason: str, answer: HttpAnswer) -> RequestRefusal:
        """Classify a reply that is not the model's answer: the request is repeated, the rollout goes on."""
        return replace(self._http.unreadable(ModelReplyError(reason), answer), repeatable=True)


def _refuse_our_fields(fields: Mapping[str, Any], where: str) -> None:
    if _OURS.isdisjoint(fields):
        return
    found = ", ".join(sorted(_OURS & fields.keys()))
    raise ConfigError(
        f"expected {where} to hold only additional request fields, got {found}, which the client sets itself",
        hint=f"remove {found} from {where}",
    )
