"""A small OpenAI-compatible HTTP server for any model client, to test the HTTP path end to end."""

from __future__ import annotations

import hmac
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from hermes_core.contracts.errors import (
    ConfigError,
    ContextOverflowError,
    HermesError,
    ModelAuthError,
    ModelRateLimitError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from hermes_core.contracts.model import Conversation, ModelClient, ModelReply, ModelRequest, ToolSchemas, encode
from hermes_models.clients.http import ROLLOUT_HEADER, SEED_HEADER
from hermes_models.clients.replies import decode_json
from hermes_models.serving.aiohttp_server import serve_application

# A long conversation exceeds aiohttp's default limit of 1 MB.
_LARGEST_REQUEST: Final = 256 * 2**20
_NOT_SAMPLING: Final = frozenset({"model", "messages", "tools", "stream"})

_STATUS: Final[tuple[tuple[type[HermesError], int, str | None], ...]] = (
    (ContextOverflowError, 400, "context_length_exceeded"),
    (ModelRequestError, 400, None),
    (ConfigError, 400, None),
    (ModelAuthError, 401, "invalid_api_key"),
    (ModelRateLimitError, 429, "rate_limit_exceeded"),
    (ModelTimeoutError, 504, None),
    (ModelUnreachableError, 503, None),
    (HermesError, 502, None),
)


class _RefusedRequestError(Exception):
    """A request that is refused before it reaches the model."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ChatServer:
    """Serves one model under one name; the number of concurrent requests is not limited."""

    def __init__(self, model: ModelClient, *, model_name: str, api_key: str | None = None) -> None:
        self._model = model
        self._model_name = model_name
        self._api_key = api_key
        self._answered = 0

    def application(self) -> web.Application:
        """Return the application; it does not own the model."""
        application = web.Application(client_max_size=_LARGEST_REQUEST)
        application.router.add_get("/health", self._health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/v1/chat/completions", self._chat)
        return application

    async def _health(self, _request: web.Request) -> web.Response:
        return _json(200, {"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        try:
            self._authorize(request)
        except _RefusedRequestError as refused:
            return _error(refused.status, str(refused), refused.code)
        entry = {"id": self._model_name, "object": "model", "created": 0, "owned_by": "hermes-core"}
        return _json(200, {"object": "list", "data": [entry]})

    async def _chat(self, request: web.Request) -> web.Response:
        try:
            self._authorize(request)
            asked = _read_request(await request.read(), self._model_name, request.headers)
            reply = await self._model.chat(asked)
        except _RefusedRequestError as refused:
            return _error(refused.status, str(refused), refused.code)
        except HermesError as error:
            return _model_error(error)
        self._answered += 1
        return _json(200, _completion(reply, self._model_name, self._answered))

    def _authorize(self, request: web.Request) -> None:
        if self._api_key is None:
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._api_key.encode()):
            raise _RefusedRequestError(
                401, "expected a valid API key as 'Authorization: Bearer KEY'", "invalid_api_key"
            )


@asynccontextmanager
async def serving(server: ChatServer, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Listen while the block runs and yield the base URL. Port 0 takes a free port. Raises `OSError` on failure."""
    async with serve_application(server.application(), host=host, port=port) as root:
        yield f"{root}/v1"


def _read_request(body: bytes, model_name: str, headers: Mapping[str, str]) -> ModelRequest:
    data = _read_object(body)
    if data.get("model") != model_name:
        raise _RefusedRequestError(
            404, f"expected the model {model_name!r}, got {data.get('model')!r}", "model_not_found"
        )
    if data.get("stream"):
        raise _RefusedRequestError(400, "this server does not stream; leave `stream` out")
    messages, tools, seed = data.get("messages"), data.get("tools") or [], headers.get(SEED_HEADER, "")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise _RefusedRequestError(400, "`messages` must be a list of at least one object")
    return ModelRequest(
        conversation=Conversation(messages),
        tools=_read_tools(tools),
        sampling={key: value for key, value in data.items() if key not in _NOT_SAMPLING},
        rollout_id=unquote(headers.get(ROLLOUT_HEADER, "")),
        seed=int(seed) if seed.isascii() and seed.isdigit() else 0,
    )


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        data = decode_json(body)
    except ValueError as error:
        raise _RefusedRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _RefusedRequestError(400, f"expected a JSON object as the body, got {type(data).__name__}")
    return data


def _read_tools(tools: Any) -> ToolSchemas:
    try:
        return ToolSchemas.of(tools)
    except (KeyError, TypeError) as error:
        raise _RefusedRequestError(400, "`tools` must be a list of objects with `function` and its `name`") from error


def _completion(reply: ModelReply, model_name: str, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
    prompt, completion = reply.usage.prompt_tokens, reply.usage.completion_tokens
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model_name,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def _model_error(error: HermesError) -> web.Response:
    status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
    response = _error(status, error.message, code)
    if isinstance(error, ModelRateLimitError) and error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return response


def _error(status: int, message: str, code: str | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return _json(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


def _json(status: int, value: Mapping[str, Any]) -> web.Response:
    return web.Response(status=status, body=encode(value), content_type="application/json")
