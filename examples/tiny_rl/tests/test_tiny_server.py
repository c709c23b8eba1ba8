from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import io

import aiohttp
import jax.numpy as jnp
import numpy as np
from aiohttp import web

from tiny_rl.model import transformer as model
from tiny_rl.model.sampling_engine import Engine, Job
from tiny_rl.model.server import TokenServer

SHAPE = model.Shape(vocabulary=50, width=64, layers=1)
PARAMS = model.create(SHAPE, 0)
OTHER = model.create(SHAPE, 1)


@pytest.fixture(scope="module")
def engine():
    engine = Engine(PARAMS, "v0")
    yield engine
    engine.close()


class Client:
    def __init__(self, session, log):
        self._session = session
        self._log = log

    async def post(self, path, body, **options):
        async with self._session.post(path, json=body, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def generate(self, prompt=(5, 6, 7), *, headers=None, **fields):
        params = fields.pop("sampling_params", {"max_tokens": 8, "logprobs": 0, "seed": 1})
        body = {"token_ids": list(prompt), "sampling_params": params, **fields}
        return await self.post("/inference/v1/generate", body, headers=headers)

    async def choice(self, *args, **fields):
        status, answer = await self.generate(*args, **fields)
        assert status == 200, answer
        return answer["choices"][0]

    def lines(self):
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@asynccontextmanager
async def serving(engine, eos_ids=(49,)):
    log = io.StringIO()
    runner = web.AppRunner(TokenServer(engine, eos_ids=eos_ids, log=log).app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield Client(session, log)
    finally:
        await runner.cleanup()


async def test_sampled_ids_come_with_their_raw_logprobs(engine):
    async with serving(engine) as client:
        choice = await client.choice(sampling_params={"max_tokens": 8, "logprobs": 0, "seed": 1, "temperature": 0.5})
    ids, content = choice["token_ids"], choice["logprobs"]["content"]
    forced = np.asarray(model.logprobs(PARAMS, jnp.array([[5, 6, 7, *ids]])))[0, 3:]
    assert [entry["token_id"] for entry in content] == ids
    assert np.abs([entry["logprob"] for entry in content] - forced).max() < 1e-4


async def test_a_seed_draws_the_same_again_alone_and_in_company(engine):
    async with serving(engine) as client:
        alone = await client.choice()
        crowd = await asyncio.gather(*(client.choice([n, 1, 2], sampling_params={"max_tokens": 8}) for n in range(9)))
        again, *_ = await asyncio.gather(client.choice(), *(client.choice([n]) for n in range(5)))
    assert again["token_ids"] == alone["token_ids"]
    assert len({tuple(choice["token_ids"]) for choice in crowd}) > 1


async def test_a_rollout_draws_the_same_whenever_its_requests_arrive(engine):
    headers = {"X-Hermes-Rollout-Id": "ro_1", "X-Hermes-Rollout-Seed": "77"}
    async with serving(engine) as client:
        first = await client.choice(sampling_params={"max_tokens": 8}, headers=headers)
        await client.choice(sampling_params={"max_tokens": 8})
        second = await client.choice(sampling_params={"max_tokens": 8}, headers=headers)
    assert first["token_ids"] == second["token_ids"]


async def test_a_turn_ends_with_a_sampled_end_of_text(engine):
    async with serving(engine) as client:
        whole = (await client.choice())["token_ids"]
    async with serving(engine, eos_ids=[whole[2]]) as client:
        choice = await client.choice()
    assert choice["token_ids"] == whole[: whole.index(whole[2]) + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)


async def test_a_stop_token_of_the_request_is_named(engine):
    async with serving(engine) as client:
        whole = (await client.choice())["token_ids"]
        choice = await client.choice(sampling_params={"max_tokens": 8, "seed": 1, "stop_token_ids": [whole[2]]})
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", whole[2])


async def test_a_turn_that_is_cut_says_so(engine):
    async with serving(engine) as client:
        choice = await client.choice(sampling_params={"max_tokens": 3, "seed": 1})
    assert (len(choice["token_ids"]), choice["finish_reason"], choice["logprobs"]) == (3, "length", None)


async def test_the_prompt_is_sent_back_where_it_is_asked_for(engine):
    async with serving(engine) as client:
        _, without = await client.generate()
        _, answer = await client.generate(return_token_ids=True)
    assert (without["prompt_token_ids"], answer["prompt_token_ids"]) == (None, [5, 6, 7])


async def test_new_weights_are_named_and_used(engine, tmp_path):
    model.save(OTHER, tmp_path / "other.npz")
    model.save(PARAMS, tmp_path / "first.npz")
    async with serving(engine) as client:
        before = await client.choice()
        await client.post("/update_weights", {"path": str(tmp_path / "other.npz"), "version": "v7"})
        after = await client.choice()
        await client.post("/update_weights", {"path": str(tmp_path / "first.npz"), "version": "v0"})
    assert before["weight_versions"] == [{"version": "v0", "start": 0, "end": len(before["token_ids"])}]
    assert after["weight_versions"] == [{"version": "v7", "start": 0, "end": len(after["token_ids"])}]
    forced = np.asarray(model.logprobs(OTHER, jnp.array([[5, 6, 7, *after["token_ids"]]])))[0, 3:]
    assert np.abs([entry["logprob"] for entry in after["logprobs"]["content"]] - forced).max() < 1e-4


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"token_ids": [], "sampling_params": {}},
        {"token_ids": [1]},
        {"token_ids": [1], "sampling_params": {"stop": ["x"]}},
        {"token_ids": [1], "sampling_params": {"logprobs": 5}},
        {"token_ids": [1] * 600, "sampling_params": {}},
        {"token_ids": [1], "sampling_params": {"max_tokens": 600}},
        {"token_ids": [1], "sampling_params": {"stop_token_ids": [1, 2, 3, 4, 5]}},
    ],
)
async def test_what_cannot_be_served_is_refused_with_a_message(engine, body):
    async with serving(engine) as client:
        status, answer = await client.post("/inference/v1/generate", body)
    assert (status, answer["error"]["code"]) == (400, 400)
    assert answer["error"]["message"]


async def test_weights_that_are_not_there_are_refused(engine):
    async with serving(engine) as client:
        status, _ = await client.post("/update_weights", {"path": "/nowhere.npz", "version": "v1"})
    assert status == 400


async def test_the_server_is_well_and_takes_aborts(engine):
    async with serving(engine) as client:
        status, _ = await client.post("/inference/v1/abort_requests", {"request_ids": ["nobody"]})
        assert status == 200
        status, _ = await client.post("/inference/v1/abort_requests", {})
        assert status == 400
        async with client._session.get("/health") as response:
            assert response.status == 200


def test_a_job_that_waits_can_be_aborted(engine):
    waiting = Job(request_id="late", prompt=[1], limit=8)
    with engine._wakeful:  # the engine's thread cannot take the job before it is aborted
        engine.submit(waiting)
        engine.abort(["late"])
    assert waiting.result.result(timeout=60).is_aborted


async def test_everything_that_was_sampled_is_logged(engine):
    async with serving(engine) as client:
        choice = await client.choice(headers={"X-Hermes-Rollout-Id": "ro_9"}, request_id="r1")
        (line,) = client.lines()
    assert (line["rollout_id"], line["request_id"], line["prompt_ids"]) == ("ro_9", "r1", [5, 6, 7])
    assert line["ids"] == choice["token_ids"]
    assert line["logprobs"] == [entry["logprob"] for entry in choice["logprobs"]["content"]]
