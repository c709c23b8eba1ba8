"""The configured reasoning fields are only a default for requests of an environment's own code."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, config, server
from chat_server import completion, serving_answers

from hermes_atropos import HermesAgentLoop

MESSAGES = [{"role": "user", "content": "own?"}]
WANTED = {"reasoning": {"enabled": True, "effort": "high"}}


async def reasoning_of_requests(use, **fields):
    """Run `use(server)` as an evaluation; returns what each request said of reasoning."""

    class Asking(PuzzleEnv):
        async def evaluate(self, *args, **kwargs):
            await use(self.server)

    async with serving_answers() as served:
        served.set_answers(completion("done"))
        env = Asking(config(**fields), [server(base_url=served.url)])
        await env._run_evaluate()
    return [{name: body[name] for name in body if "reasoning" in name} for _, body in served.chats]


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, WANTED),
        ({"extra_body": {"top_k": 7}}, WANTED),
        ({"extra_body": {"reasoning": {"effort": "low"}}}, {"reasoning": {"effort": "low"}}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"skip_reasoning": True}, {}),
        ({"skip_reasoning": False}, WANTED),
    ],
)
async def test_a_calls_own_wish_replaces_the_configurations(options, body):
    assert (
        await reasoning_of_requests(
            lambda s: s.chat_completion(messages=MESSAGES, n=2, **options), reasoning_effort="high"
        )
        == [body] * 2
    )


@pytest.mark.parametrize(
    ("extra", "body"), [(None, WANTED), ({"reasoning": {"enabled": False}}, {"reasoning": {"enabled": False}})]
)
async def test_a_loops_own_wish_replaces_the_configurations(extra, body):
    async def use(servers):
        await HermesAgentLoop(servers, [], set(), max_turns=1, extra_body=extra).run(list(MESSAGES))

    assert await reasoning_of_requests(use, reasoning_effort="high") == [body]


async def test_without_a_wish_nothing_is_added():
    assert await reasoning_of_requests(
        lambda servers: servers.chat_completion(messages=MESSAGES), extra_body={"reasoning": {}}
    ) == [{}]
