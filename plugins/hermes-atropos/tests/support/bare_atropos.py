"""Environments on bare atroposlib, and servers on loopback, to show its own behaviour."""

from __future__ import annotations

import asyncio
import json
import types
from contextlib import asynccontextmanager

from aiohttp import web

from hermes_atropos.compat import APIServerConfig, BaseEnv, BaseEnvConfig


class NoTokenizer:
    """Stands for transformers' AutoTokenizer, which would ask the network."""

    asked: list[str]

    def __init__(self):
        self.asked = []

    def from_pretrained(self, name, **options):
        self.asked.append(name)
        return self

    def decode(self, tokens, **options):
        return " ".join(map(str, tokens))


class BareEnv(BaseEnv):
    """An environment as written for bare atroposlib."""

    def __init__(self, config=None, collect=None):
        config = config or BaseEnvConfig(use_wandb=False, group_size=3, batch_size=12)
        server = APIServerConfig(base_url="http://127.0.0.1:9/v1", api_key="x", health_check=False)
        super().__init__(config, [server])
        self.status_dict = {"current_step": 0, "queue_size": 0, "self_queue_size": 0, "max_group_size": 3}
        self.items = 0
        self._collect = collect

    async def setup(self):
        pass

    async def get_next_item(self):
        self.items += 1
        return {"number": self.items}

    async def collect_trajectory(self, item):
        return await self._collect(item), []

    async def evaluate(self):
        pass


def group_with_score(score=1.0, **fields):
    return {"tokens": [1, 2, 3], "masks": [-100, 2, 3], "scores": score, **fields}


@asynccontextmanager
async def answering(handler):
    """Serve one handler for every path; yield the base URL and the requests so far as (path, body)."""
    seen = []

    async def catch_all(request):
        body = await request.read()
        seen.append((request.path, json.loads(body) if body else None))
        answer = handler(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", catch_all)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield types.SimpleNamespace(url=f"http://127.0.0.1:{port}", seen=seen)
    finally:
        await runner.cleanup()
