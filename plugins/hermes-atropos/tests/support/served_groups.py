"""A trainer that takes one group of an environment whose model server answers at token level."""

from __future__ import annotations

import asyncio

from chatml_folder import chatml_folder
from token_server import Sampled, TokenServer, serving_tokens
from trajectory_api import api_with_trainer

from hermes_tokens import ChatTokenizer


async def serve_one_group(environment, reply, folder, **fields):
    """Serve an environment until the trainer has a group; returns both, with the text that the first rollout trains on.

    `environment` makes it of a command line's words and fields; `reply` gives the model's text for a prompt.
    """
    folder = chatml_folder(folder)
    tokenizer = ChatTokenizer.load(folder)

    def sample(prompt, sampling):
        ids = tokenizer.encode_scaffold(reply(tokenizer.decode(prompt)))
        return Sampled(ids=ids, logprobs=[-0.5] * len(ids), stop_id=ids[-1])

    async with (
        api_with_trainer(batch_size=2, max_token_len=9000) as (api, trainer),
        serving_tokens(TokenServer("vllm", sample)) as served,
    ):
        address = ("--openai.base_url", f"{served.url}/v1", "--openai.server_type", "vllm")
        given = {"rollout_server_url": api.url, "tokenizer_name": folder, "total_steps": 1, **fields}
        env = environment(*address, command="serve", **given)
        task = asyncio.create_task(env.env_manager())
        (group,) = await trainer.batch()
        await asyncio.wait_for(task, 60)
    return env, group, tokenizer.decode([mask for mask in group["masks"][0] if mask != -100])
