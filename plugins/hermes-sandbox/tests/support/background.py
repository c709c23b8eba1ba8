"""What the tests of background processes share: a rollout's context with a registry, and patient looks at output."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

from sandbox_support import sandbox

from hermes_tools import ProcessRegistry, ProcessTool, RolloutProcesses, TerminalTool


async def reads(processes, process_id, wanted, *, seconds=60.0):
    """Wait until the output holds `wanted`; returns all of it."""
    async with asyncio.timeout(seconds):
        while True:
            output = await processes.read(process_id, offset=0, limit=1 << 21)
            if wanted in output.data:
                return output.data
            assert output.running, f"it ended without {wanted!r}: {output.data!r}"
            await asyncio.sleep(0.01)


class Model:
    """Calls the two tools as a model would, and reads their JSON."""

    def __init__(self, opened, registry, rollout_id):
        processes = RolloutProcesses(registry, rollout_id, opened, session_key="chat-1")
        self.context = SimpleNamespace(sandbox=opened, state={}, processes=processes, rollout_id=rollout_id)
        self.registry = registry

    async def terminal(self, command, **arguments):
        return self._read(await TerminalTool().call({"command": command, **arguments}, self.context))

    async def background(self, command, **arguments):
        answer = await self.terminal(command, background=True, **arguments)
        assert answer["error"] is None, answer
        return answer["session_id"]

    async def process(self, action, session_id=None, **arguments):
        given = {"session_id": session_id} if session_id is not None else {}
        return self._read(await ProcessTool().call({"action": action, **given, **arguments}, self.context))

    async def says(self, session_id, wanted, *, seconds=60.0):
        """Poll until the new output holds `wanted`; returns what was polled."""
        seen = ""
        async with asyncio.timeout(seconds):
            while wanted not in seen:
                answer = await self.process("poll", session_id)
                seen += answer["output_preview"]
                assert wanted in seen or answer["status"] == "running", seen
                await asyncio.sleep(0.01)
        return seen

    def _read(self, result):
        return json.loads(result.content)


@asynccontextmanager
async def model(level="none", *, rollout_id="rollout-1", registry=None, **options):
    own = registry or ProcessRegistry(**options)
    async with sandbox(level) as opened:
        try:
            yield Model(opened, own, rollout_id)
        finally:
            await own.release(rollout_id)
            await own.aclose()
