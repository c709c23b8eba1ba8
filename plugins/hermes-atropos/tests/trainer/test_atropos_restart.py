"""A trajectory API that restarts with another trainer: what that one says holds from then on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, environment, says
from trajectory_api import api_with_trainer


def new_env(url, **fields):
    answers = iter(range(10**9))
    model = TokenDouble(lambda request: says("0" if next(answers) % 2 else "?"))
    defaults = {"serve_poll_interval": 0.02, "api_patience": 30, "max_num_workers": 2, "max_batches_offpolicy": 1}
    return environment(model, kind=PuzzleEnv, rollout_server_url=url, **{**defaults, **fields})


@contextlib.asynccontextmanager
async def serving(env):
    task = asyncio.create_task(env.env_manager())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def restart_api(before, after, **fields):
    """Serve a trainer that registers with `before`, restart the API, and let one register with `after`."""
    async with api_with_trainer(batch_size=2, **before) as (api, trainer):
        env = new_env(api.url, **fields)
        async with serving(env) as service:
            await trainer.queued(1)
            api.kill()
            api.start()
            await trainer.ready()
            await trainer.register(batch_size=2, **after)
            yield env, trainer, service


@pytest.mark.parametrize(("before", "after"), [(2, 5), (100, 3)])
async def test_an_environment_without_total_steps_runs_as_many_as_the_new_trainer_has(before, after):
    async with restart_api({"num_steps": before}, {"num_steps": after}, total_steps=-1) as (env, trainer, service):
        for _ in range(after):
            await trainer.batch()
        await asyncio.wait_for(service, 60)
        assert env.config.total_steps == after


async def test_total_steps_of_the_config_stay():
    async with restart_api({"num_steps": 100}, {"num_steps": 50}, total_steps=3) as (env, trainer, service):
        for _ in range(3):
            await trainer.batch()
        await asyncio.wait_for(service, 60)
        assert env.config.total_steps == 3


async def test_the_new_trainers_longest_sequence_and_checkpoints_hold():
    before = {"max_token_len": 100, "checkpoint_dir": "old", "save_checkpoint_interval": 7}
    after = {"max_token_len": 50, "checkpoint_dir": "new", "save_checkpoint_interval": 9}
    async with restart_api(before, after, total_steps=50) as (env, _, _):
        await until(lambda: env.checkpoint_dir == "new")
        assert (env.max_token_len, env.checkpoint_interval) == (50, 9)
