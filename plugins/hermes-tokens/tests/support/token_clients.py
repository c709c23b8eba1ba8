"""Generate clients for tests: they note their pauses instead of sleeping, and are closed at the end."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from hermes_tokens.clients.factory import create_generate_client
from hermes_tokens.generation import GenerateClient, GenerateRequest, TokenIds

NOON = 1_800_000_000.0
PROTOCOLS = ("vllm", "sglang", "atropos")


@asynccontextmanager
async def connecting_tokens() -> AsyncIterator[Callable[..., Any]]:  # with `pauses`, which the class has not
    made: list[GenerateClient] = []

    def make(server: Any, **options: Any) -> GenerateClient:
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        values = {"sleep": pause, "clock": lambda: NOON, "rng": random.Random(1), **options}
        url = values.pop("base_url", server.url)
        client = create_generate_client(server.wire.name, url, values.pop("model_name", "m"), **values)
        setattr(client, "pauses", pauses)  # noqa: B010 - for the tests to look at; no attribute of the client's
        made.append(client)
        return client

    try:
        yield make
    finally:
        for client in made:
            await client.aclose()


def request(*ids: int, **fields: Any) -> GenerateRequest:
    return GenerateRequest(prompt=TokenIds(ids or (5, 6, 7)), **fields)
