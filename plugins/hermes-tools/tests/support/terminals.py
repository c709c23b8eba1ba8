"""Shared by the tests of the interactive terminal: a driver that calls its two tools."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from hermes_core.tooling import prepare_arguments
from hermes_testing.watching import eventually
from hermes_tools.catalog import TOOLS
from hermes_tools.interactive.terminal_stateful import TerminalStatefulTool
from hermes_tools.interactive.tmux import TmuxTool

SPECS = {spec.name: spec for spec in TOOLS}


class Driver:
    """Calls `terminal_stateful` and `tmux` as a model would, and parses their JSON."""

    def __init__(self, opened):
        self.context = SimpleNamespace(sandbox=opened, state={})

    async def run(self, command, **arguments):
        return await self._call(TerminalStatefulTool(), "terminal_stateful", {"command": command, **arguments})

    async def tmux(self, action, **arguments):
        return await self._call(TmuxTool(), "tmux", {"action": action, **arguments})

    async def keys(self, *keys, **arguments):
        return await self.tmux("send_keys", keys=list(keys), **arguments)

    async def sees(self, wanted, *, seconds=60.0):
        """Capture the screen until it contains `wanted`. Return the answer."""
        async with asyncio.timeout(seconds):
            while True:
                answer = await self.tmux("capture")
                if wanted in answer.get("screen", ""):
                    return answer
                assert answer.get("status") != "exited", answer

    async def shows(self, screen):
        """Capture the screen until it shows exactly this, which can be some time after the shell's prompt is back."""

        async def is_shown():
            return (await self.tmux("capture"))["screen"] == screen

        return await eventually(is_shown)

    async def _call(self, tool, name, arguments):
        given = prepare_arguments(SPECS[name], json.dumps(arguments))
        result = await tool.call(given, self.context)
        return json.loads(result.content) | ({"failed": result.error} if result.error else {})
