"""The environment against a server that only records requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import random

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from aiohttp import web

from hermes_atropos import APIServerConfig
from tiny_rl.env import LookupEnv
from tiny_rl.model import tokenizer
from tiny_rl.tasks import COLOURS, demonstration, tasks

TOOLS = ({"type": "function", "function": {"name": "read_file"}},)
TASKS = 6


class Server:
    """Replies only with the end of a turn; with `waits_for_all`, to the requests of an evaluation in reverse order."""

    def __init__(self, stop_id, *, waits_for_all):
        self.seeds = {}
        self._stop_id = stop_id
        self._waits_for_all = waits_for_all
        self._turns = []

    async def generate(self, request):
        asked = await request.json()
        self.seeds[tuple(asked["token_ids"])] = request.headers["X-Hermes-Rollout-Seed"]
        if self._waits_for_all:
            await self._turn()
        entry = {"token_id": self._stop_id, "logprob": -0.5, "rank": 1}
        choice = {
            "index": 0,
            "token_ids": [self._stop_id],
            "finish_reason": "stop",
            "stop_reason": None,
            "logprobs": {"content": [{**entry, "top_logprobs": [entry]}]},
        }
        return web.json_response({"request_id": "r", "output_mode": "tokens", "choices": [choice]})

    async def _turn(self):
        turn = asyncio.Event()
        self._turns.append(turn)
        if len(self._turns) == TASKS:
            self._turns.pop().set()
        await turn.wait()
        if self._turns:
            self._turns.pop().set()


async def evaluated(folder, tmp_path, *, seed=0, waits_for_all=False):
    """Evaluate once; returns the sampling seed of each prompt, and the recorded results."""
    server = Server(tokenizer.stop_ids(folder)[0], waits_for_all=waits_for_all)
    app = web.Application()
    app.add_routes([web.get("/health", _healthy), web.post("/inference/v1/generate", server.generate)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config, _ = LookupEnv.config_init()
    fields = {
        "tokenizer_name": str(folder),
        "seed": seed,
        "task_seed": seed,
        "eval_tasks": TASKS,
        "evals_path": str(tmp_path / "evals.jsonl"),
    }
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    servers = [APIServerConfig(base_url=address, server_type="vllm", model_name="default")]
    try:
        await LookupEnv(config.model_copy(update=fields), servers)._run_evaluate()
    finally:
        await runner.cleanup()
    (line,) = [json.loads(line) for line in (tmp_path / "evals.jsonl").read_text(encoding="utf-8").splitlines()]
    (tmp_path / "evals.jsonl").unlink()
    return server.seeds, line


async def _healthy(_):
    return web.Response()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    chance = random.Random(0)
    texts = [tokenizer.render(demonstration(task, chance), TOOLS) for task in itertools.islice(tasks("train", 0), 300)]
    place = tmp_path_factory.mktemp("model")
    tokenizer.save(tokenizer.train(texts, COLOURS), place)
    return place


async def test_an_evaluation_samples_with_the_same_seeds_again_in_whatever_order_answers_come(folder, tmp_path):
    first, noted = await evaluated(folder, tmp_path)
    second, _ = await evaluated(folder, tmp_path, waits_for_all=True)
    assert first == second
    assert len(set(first.values())) == len(first) == TASKS
    assert (noted["tasks"], noted["scored"], noted["reward"]) == (TASKS, TASKS, 0.0)


async def test_two_seeds_are_evaluated_on_two_sets(folder, tmp_path):
    one, _ = await evaluated(folder, tmp_path, seed=0)
    other, _ = await evaluated(folder, tmp_path, seed=1)
    assert set(one.values()).isdisjoint(other.values())
    assert set(one) != set(other)
