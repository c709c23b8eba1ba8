"""Shared by the tests of the executor: an executor on a backend, and a terminal call."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_tool_services import ToolExecutor, ToolExecutorConfig
from hermes_tools.agent_tools import ToolCall, ToolRegistry


@functools.cache
def plugins() -> Registry:
    """Return the installed plugins, loaded once."""
    return load_plugins(PluginSettings(), environ={})


def terminal(command: str, **arguments: Any) -> ToolCall:
    """Return a call of the tool terminal."""
    return ToolCall("terminal", {"command": command, **arguments}, uniq_id="call_1")


@asynccontextmanager
async def executor_on(backend: Any, tools: ToolRegistry | None = None, **config: Any) -> AsyncIterator[ToolExecutor]:
    """Return a started executor; it and the backend are closed afterwards."""
    executor = ToolExecutor(backend, tools, ToolExecutorConfig(**config), registry=plugins())
    try:
        async with executor:
            yield executor
    finally:
        await backend.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something has become true."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
