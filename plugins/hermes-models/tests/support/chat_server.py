"""A chat server on the loopback interface that gives the answers of a test."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_models.clients.openai import OpenAIChatClient

NOON = 1_800_000_000.0


def completion(content="ok", **message):
    return {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}]}


class Server:
    """Sends one answer per request and repeats the last one; keeps the requests."""

    def __init__(self):
        self.answers: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = []
        self.chats: list[tuple[dict, dict]] = []
        self.lists = 0
        self.models = web.json_response({"data": [{"id": "m"}]})
        self.lists_with: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.url = ""

    def set_answers(self, *answers):
        self.answers = [_as_handler(answer) for answer in answers]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.chats.append((dict(request.headers), json.loads(await request.read())))
        handler = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await handler(request)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        if self.lists_with is not None:
            return await self.lists_with(request)
        # A copy: an answer can be sent once.
        return web.Response(status=self.models.status, body=self.models.body, headers=self.models.headers)


def _as_handler(answer):
    if callable(answer):
        return answer

    async def handler(_request):
        status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(status=status, body=data, headers=headers)

    return handler


@asynccontextmanager
async def serving_answers() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.list_models)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connecting(server) -> AsyncIterator[Callable[..., Any]]:  # with `pauses`, which the class has not
    """Make clients of the server that note their pauses in `client.pauses` instead of sleeping."""
    made = []

    def make(**options):
        pauses = []

        async def pause(seconds):
            pauses.append(seconds)

        values = {"base_url": server.url, "model_name": "m", "sleep": pause, "clock": lambda: NOON}
        client = OpenAIChatClient(**{**values, "rng": random.Random(1), **options})
        setattr(client, "pauses", pauses)  # noqa: B010 - for the tests to look at; no attribute of the client's
        made.append(client)
        return client

    try:
        yield make
    finally:
        for client in made:
            await client.aclose()


def ask(text="hello", **fields):
    return ModelRequest(
        **{"conversation": Conversation([{"role": "user", "content": text}]), "tools": ToolSchemas(), **fields}
    )
