"""A `collect_trajectory` copied from hermes-agent: its reward, its tokens, and what a trainer may have of them."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, TokenDouble, lines
from atropos_envs import environment as puzzles
from chat_server import completion, serving_answers
from chatml_folder import chatml_folder
from token_server import Sampled, TokenServer, serving_tokens
from trajectory_api import api_with_trainer
from written_rollouts_env import WrittenRolloutsEnv

from hermes_atropos.command import parse
from hermes_atropos.groups.grouping import Limits, refusal
from hermes_core.contracts.errors import UserError
from hermes_tokens import ChatTokenizer

PLUGINS = (
    '{"allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", '
    '"hermes-runner"], "extra": ["atropos_components"]}'
)
CALLS = "CALL no_such_tool<|im_end|>"
ANSWERS = "done<|im_end|>"


def environment(url, kind=WrittenRolloutsEnv, **fields):
    words = [word for name, value in fields.items() for word in (f"--env.{name}", str(value))]
    server = ["--openai.base_url", f"{url}/v1", "--openai.server_type", "vllm"]
    invocation = parse(kind, ["process", "--env.plugins", PLUGINS, *server, *words])
    return kind(invocation.env, invocation.servers)


@pytest.fixture
def folder(tmp_path):
    return chatml_folder(tmp_path / "tokenizer")


def sampler(folder, *turns):
    """Sample these turns, repeating the last one."""
    tokenizer = ChatTokenizer.load(folder)

    def sample(prompt, _sampling):
        told = tokenizer.decode(prompt).count("<tool_response>")
        ids = tokenizer.encode_scaffold(turns[min(told, len(turns) - 1)])
        return Sampled(ids=ids, logprobs=[-0.5 - n / 64 for n in range(len(ids))], stop_id=ids[-1])

    return sample


async def process_rollouts(folder, tmp_path, *turns, kind=WrittenRolloutsEnv, **fields):
    path = tmp_path / "g.jsonl"
    fields = {"tokenizer_name": folder, "tool_call_parser": "shouting", "total_steps": 1, **fields}
    async with serving_tokens(TokenServer("vllm", sampler(folder, *turns))) as server:
        env = environment(server.url, kind=kind, data_path_to_save_groups=path, **fields)
        await env.process_manager()
        return env, lines(path), server.lines


async def test_its_reward_calls_its_context_without_await(folder, tmp_path):
    env, (group,), _ = await process_rollouts(folder, tmp_path, CALLS, ANSWERS)
    assert group["scores"] == [1.0, 1.0]
    assert env.server.own._open == {}


async def test_its_tokens_get_the_logprobs_that_the_server_sent(folder, tmp_path):
    _, (group,), log = await process_rollouts(folder, tmp_path, CALLS, ANSWERS)
    turns = {len(line["ids"]): list(zip(line["ids"], line["logprobs"], strict=True)) for line in log}
    call, answer = (turns[size] for size in sorted(turns, reverse=True))
    for masks, numbers in zip(group["masks"], group["inference_logprobs"], strict=True):
        pairs = list(zip(masks, numbers, strict=True))
        assert [pair for pair in pairs if pair[0] != -100] == [*call, *answer]
        assert {number for mask, number in pairs if mask == -100} == {1.0}


async def test_its_group_has_one_draw_of_tools(folder, tmp_path):
    env, _, _ = await process_rollouts(folder, tmp_path, ANSWERS)
    assert [sorted(names) for names in env.groups_with_tools] == [sorted(env.groups_with_tools[0])] * 2
    assert "terminal" in env.groups_with_tools[0]


async def test_its_own_groups_may_keep_their_draw_where_hermes_agent_did(folder, tmp_path):
    class OwnGroups(WrittenRolloutsEnv):
        async def collect_trajectories(self, item):
            self._current_group_tools = self._resolve_tools_for_group()
            made = [(await self.collect_trajectory(item))[0] for _ in range(2)]
            return {key: [one[key] for one in made] for key in ("tokens", "masks", "scores")}, []

    env, (group,), _ = await process_rollouts(folder, tmp_path, CALLS, ANSWERS, kind=OwnGroups)
    assert group["scores"] == [1.0, 1.0]
    assert len(env.groups_with_tools) == 2


async def test_its_tool_errors_are_reported(folder, tmp_path):
    reported = []

    class Reporting(WrittenRolloutsEnv):
        async def wandb_log(self, wandb_metrics=None):
            metrics = {} if wandb_metrics is None else wandb_metrics
            await super().wandb_log(metrics)
            reported.append(metrics)

    await process_rollouts(folder, tmp_path, CALLS, ANSWERS, kind=Reporting)
    assert reported[0]["train/tool_errors_count"] == 2
    assert reported[0]["train/tool_error_details"].startswith("[turn 1] no_such_tool(")


async def test_its_tokens_of_phase_one_are_untrainable_and_never_sent():
    async with serving_answers() as chat, api_with_trainer(batch_size=2, max_token_len=9000) as (api, trainer):
        chat.set_answers(completion("done"))
        plugins = json.loads(PLUGINS)
        config, servers = WrittenRolloutsEnv.config_init()
        config = type(config)(
            **{
                **config.model_dump(exclude_unset=True),
                "plugins": plugins,
                "tool_call_parser": None,
                "rollout_server_url": api.url,
                "serve_poll_interval": 0.02,
            }
        )
        env = WrittenRolloutsEnv(config, [servers[0].model_copy(update={"base_url": chat.url})])
        with pytest.raises(UserError, match="not trainable: the server gave no token ids"):
            await env.env_manager()
        assert await trainer.queue() == 0
        assert env.ledger.summary()["sent"] == 0


async def test_its_items_of_phase_one_are_marked_and_its_own_word_counts():
    limits = Limits(group_size=2, distinct_scores=False, is_recorded=False)
    item = {**GOOD, "inference_logprobs": [1.0, -0.5]}
    for word, marked in (({}, False), ({"trainable": True}, True)):
        group, _ = await collect_group({**item, "overrides": word}, model=ChatDouble())
        assert [about["trainable"] for about in group["overrides"]] == [marked] * 2
        assert (refusal(group, limits) is None) is marked


@pytest.mark.parametrize("number", [1.0, None])
def test_a_trained_token_with_the_number_of_a_masked_one_is_never_sent(number):
    group = {
        "tokens": [[1, 2], [1, 3]],
        "masks": [[-100, 2], [-100, 3]],
        "scores": [0.0, 1.0],
        "inference_logprobs": [[1.0, -0.5], [1.0, number]],
    }
    reason = refusal(group, Limits(group_size=2))
    assert reason == "not trainable: the server gave trained tokens without logprobs"


GOOD = {"tokens": [1, 2], "masks": [-100, 2], "scores": 1.0}


class OfAnotherLibrary:
    """A number as NumPy's are: no int, no float, and no JSON."""

    def __init__(self, value):
        self.value = value

    def __int__(self):
        return int(self.value)

    def __float__(self):
        return float(self.value)


async def collect_group(item, model=None):
    class Own(PuzzleEnv):
        async def collect_trajectory(self, _item):
            return item, []

    env = puzzles(model or TokenDouble(), kind=Own, max_attempts=1)
    await env.setup()
    group, _ = await env.collect_trajectories(await env.get_next_item())
    await env.aclose()
    return group, {entry.reason for entry in env.ledger.entries}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({**GOOD, "scores": math.nan}, "as an item's score, got nan"),
        ({**GOOD, "scores": None}, "expected an item with 'scores'"),
        ({**GOOD, "masks": [2]}, "expected one mask for each of 2 tokens, got 1"),
        ({"tokens": [1], "scores": 1.0}, "expected an item with 'masks'"),
    ],
)
async def test_an_own_item_that_is_not_a_scored_sequence_fails_its_place_with_the_reason(item, reason):
    group, reasons = await collect_group(item)
    assert group is None
    assert len(reasons) == 1
    assert reason in reasons.pop()


async def test_an_own_item_may_be_made_of_another_librarys_numbers():
    item = {"tokens": [OfAnotherLibrary(1), 2], "masks": [-100, OfAnotherLibrary(2)], "scores": OfAnotherLibrary(0.5)}
    group, _ = await collect_group(item)
    assert (group["tokens"], group["masks"], group["scores"]) == ([[1, 2]] * 2, [[-100, 2]] * 2, [0.5] * 2)
    json.dumps(group)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("scores", [0.0, math.nan], "a score is not a finite number"),
        ("scores", [0.0, None], "a score is not a finite number"),
        ("masks", [[-100, 2], [3]], "masks and tokens differ in length"),
    ],
)
def test_an_own_group_that_is_not_of_scored_sequences_goes_nowhere(field, value, reason):
    group = {"tokens": [[1, 2], [1, 3]], "masks": [[-100, 2], [-100, 3]], "scores": [0.0, 1.0], field: value}
    assert refusal(group, Limits(group_size=2, for_trainer=False)) == reason
