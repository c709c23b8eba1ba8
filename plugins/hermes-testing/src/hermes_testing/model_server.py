"""A scripted chat server: it replies as a task's prompt says, and holds replies until they are released."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from hermes_models import ROLLOUT_HEADER

if TYPE_CHECKING:
    from aiohttp import web

Step = Mapping[str, Any]
"""One reply of the model: `say`, or `tool` with `arguments`; `hold` until released; `status` the first `times`."""
MODEL: Final = "conformance"


def say(text: str, **how: Any) -> Step:
    """Reply with a text, which ends the rollout."""
    return {"say": text, **how}


def call(tool: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> Step:
    """Call a tool."""
    return {"tool": tool, "arguments": dict(arguments or {}), **how}


class ModelServer:
    """The requests it got, and from which rollouts; `held` counts the waiting replies by task.

    A prompt is a JSON object: `task`, and `steps`. The number of earlier replies selects the step; the last step
    repeats.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: Counter[tuple[str, int]] = Counter()
        self.held: Counter[str] = Counter()
        self.most = 0
        self.tasks: dict[str, str] = {}
        self.told: dict[str, list[Mapping[str, Any]]] = {}
        self.keys: dict[str, set[str]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def release(self, *tasks: str) -> None:
        """Release the replies of these tasks, from now on."""
        for task in tasks:
            self._gate(task).set()

    def places(self) -> dict[str, dict[str, Any]]:
        """Return the last result of the tool that names the process, by rollout."""
        found = {}
        for rollout, messages in self.told.items():
            answers = [message["content"] for message in messages if message["role"] == "tool"]
            if answers:
                found[rollout] = json.loads(answers[-1])
        return found

    async def until(self, holds: Callable[[], bool], *, seconds: float) -> None:
        """Wait until a condition on the requests holds; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def _gate(self, task: str) -> asyncio.Event:
        return self._gates.setdefault(task, asyncio.Event())

    async def models(self, request: web.Request) -> web.Response:
        """List the one model."""
        from aiohttp import web

        del request
        return web.json_response({"data": [{"id": MODEL}]})

    async def chat(self, request: web.Request) -> web.Response:
        """Run the next step."""
        from aiohttp import web

        messages = (await request.json())["messages"]
        script = json.loads(next(message["content"] for message in messages if message["role"] == "user"))
        task, turn = script["task"], sum(message["role"] == "assistant" for message in messages)
        step = script["steps"][min(turn, len(script["steps"]) - 1)]
        self._note(request, task, turn, messages)
        if step.get("hold"):
            await self._hold(task)
        if self.asked[task, turn] <= step.get("times", 0):
            return web.json_response({"error": {"message": "refused by the script"}}, status=step["status"])
        return web.json_response(_completion(task, turn, step))

    def _note(self, request: web.Request, task: str, turn: int, messages: list[Mapping[str, Any]]) -> None:
        rollout = request.headers[ROLLOUT_HEADER]
        self.asked[task, turn] += 1
        self.tasks[rollout], self.told[rollout] = task, messages
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.keys.setdefault(task, set()).add(key)
        self._changed.set()

    async def _hold(self, task: str) -> None:
        self.held[task] += 1
        self.most = max(self.most, self.held.total())
        self._changed.set()
        try:
            await self._gate(task).wait()
        finally:
            self.held[task] -= 1
            self._changed.set()


def _completion(task: str, turn: int, step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.get("say")}
    if "tool" in step:
        function = {"name": step["tool"], "arguments": json.dumps(step["arguments"])}
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": function}]
    sampled = 3 + 2 * turn + len(task)
    usage = {"prompt_tokens": 11 + 7 * turn, "completion_tokens": sampled, "total_tokens": 11 + 7 * turn + sampled}
    reason = "tool_calls" if "tool" in step else "stop"
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}


@asynccontextmanager
async def serving_model(host: str) -> AsyncIterator[ModelServer]:
    """Serve on an address of this machine that the engine's workers can reach."""
    from aiohttp import web

    server = ModelServer()
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        server.url = f"http://{host}:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        await runner.cleanup()
