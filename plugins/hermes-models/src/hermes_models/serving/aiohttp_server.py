"""Serve an aiohttp application while a block runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serve_application(application: web.Application, *, host: str, port: int) -> AsyncIterator[str]:
    """Listen while the block runs and yield the root URL. Port 0 takes a free port. Raises `OSError` on failure."""
    # A client that disconnects cancels its request, as on a real server.
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        await runner.cleanup()
