"""The real trajectory API of atroposlib in a separate process, and a trainer that only uses its HTTP interface."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import weakref
from contextlib import asynccontextmanager

import aiohttp

from hermes_testing.servers import held_port


class RunApi:
    """`run-api` on the loopback interface; can be killed and started again on its port."""

    def __init__(self):
        holding = contextlib.ExitStack()
        weakref.finalize(self, holding.close)  # for as long as this object is there
        self.port = holding.enter_context(held_port())
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = None

    def start(self):
        command = [sys.executable, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Trainer:
    """Registers, and takes batches."""

    def __init__(self, url, session):
        self.url = url
        self._session = session
        self.batches = []

    async def ask(self, method, path, payload=None):
        async with self._session.request(method, self.url + path, json=payload) as response:
            return await response.json()

    async def is_there(self):
        with contextlib.suppress(aiohttp.ClientError):
            return (await self.ask("GET", "/"))["message"] == "AtroposLib API"
        return False

    async def ready(self):
        """Wait until the API answers."""
        async with asyncio.timeout(60):
            while not await self.is_there():
                await asyncio.sleep(0.05)

    async def register(self, *, batch_size=2, max_token_len=100, num_steps=100, starting_step=0, **more):
        fields = {
            "wandb_group": "g",
            "wandb_project": "p",
            "batch_size": batch_size,
            "max_token_len": max_token_len,
            "checkpoint_dir": "",
            "save_checkpoint_interval": -1,
            "starting_step": starting_step,
            "num_steps": num_steps,
            **more,
        }
        await self.ask("POST", "/register", fields)
        await self.ask("GET", "/batch")  # only now the API lets environments in

    async def batch(self):
        """Wait for a batch and return its groups."""
        async with asyncio.timeout(60):
            while True:
                batch = (await self.ask("GET", "/batch"))["batch"]
                if batch is not None:
                    self.batches.append(batch)
                    return batch
                await asyncio.sleep(0.02)

    async def queue(self):
        return (await self.ask("GET", "/status"))["queue_size"]

    async def queued(self, count):
        """Wait until the queue holds this many groups."""
        async with asyncio.timeout(60):
            while await self.queue() < count:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def api_with_trainer(**registration):
    """Run the API with a registered trainer, and end both."""
    api = RunApi()
    api.start()
    try:
        async with trainer_at(api.url) as trainer:
            await trainer.ready()
            await trainer.register(**registration)
            yield api, trainer
    finally:
        api.kill()


@asynccontextmanager
async def trainer_at(url):
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Trainer(url, session)
