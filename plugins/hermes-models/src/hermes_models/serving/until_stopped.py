"""Shared by the commands that serve: print the address, wait for a signal, explain failures."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager

from hermes_core.cli import end_signals
from hermes_core.contracts.errors import UserError


async def serve_until_stopped(serving: AbstractAsyncContextManager[str], *, host: str, port: int) -> None:
    """Enter a context that listens, print its address, and leave it on SIGINT, SIGTERM or SIGHUP."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *end_signals()):
        loop.add_signal_handler(number, stop.set)
    try:
        async with serving as url:
            sys.stdout.write(f"listening on {url}\n")
            sys.stdout.flush()
            await stop.wait()
    except (OSError, OverflowError) as error:  # the latter for a port above 65535
        hint = "--port 0 takes a free port" if port else "--host 127.0.0.1 listens on this machine only"
        raise UserError(f"cannot listen on {host}:{port}: {error}", hint=hint) from error
