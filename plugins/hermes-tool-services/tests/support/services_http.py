"""The services on a free port of this machine, and bare requests to them."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from hermes_models import serve_application


@asynccontextmanager
async def serve(application: web.Application) -> AsyncIterator[str]:
    """Listen while the block runs; yields the address."""
    async with serve_application(application, host="127.0.0.1", port=0) as url:
        yield url


async def ask(
    method: str,
    url: str,
    *,
    token: str | None = None,
    data: bytes | None = None,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """Send one request and return status and JSON."""
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    if data is not None:
        sent.setdefault("Content-Type", "application/json")
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, url, data=None if data is None else io.BytesIO(data), json=json, headers=sent
        ) as response,
    ):
        return response.status, await response.json()
